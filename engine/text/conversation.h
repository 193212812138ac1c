// SPDX-License-Identifier: Apache-2.0
//
// A conversation as every API dialect hands it to every chat format, and the pieces in which a
// reply comes back. Plain data; what a request may not say (vendor contract) is refused by the
// dialect.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/text/json_text.h"

namespace penstock {

enum class Role : std::uint8_t {
  system,  // "developer" too
  user,
  assistant,
  tool,   // "function" too
  other,  // left out of prompts
};

struct ContentPart {
  enum class Kind : std::uint8_t { text, image };
  Kind kind = Kind::text;
  std::string text{};      // UTF-8, never trimmed
  std::int32_t width = 0;  // pixels of the image as sent
  std::int32_t height = 0;
};

struct ToolCall {
  std::string id{};         // empty: none
  std::string name{};       // must not be empty
  std::string arguments{};  // the client's string; an object as write_json(object, kPythonJson)
};

struct Message {
  Role role = Role::user;
  std::string name{};                  // empty: none
  std::vector<ContentPart> content{};  // a string is one part; null and absent are none
  bool partial = false;                // last message, assistant: to be continued

  std::string reasoning{};             // assistant
  std::vector<ToolCall> tool_calls{};  // assistant
  std::vector<JsonValue> tools{};      // system: declared from here on; the content is then ignored
  std::string tool_call_id{};          // tool; empty: none
  std::string tool{};                  // tool: name of the called function, empty: not said
};

enum class ThinkingEffort : std::uint8_t { low, high, max };
enum class ToolChoice : std::uint8_t { automatic, none, required };  // required: a named one too
enum class ResponseFormat : std::uint8_t { text, json_object, json_schema };

struct Conversation {
  std::vector<Message> messages;
  std::vector<JsonValue> tools;  // OpenAI's tool objects, as sent
  ToolChoice tool_choice = ToolChoice::automatic;
  ResponseFormat response_format = ResponseFormat::text;
  JsonValue response_schema;  // for json_schema: the schema itself
  bool thinking = true;
  std::optional<ThinkingEffort> effort = ThinkingEffort::max;  // nullopt: nothing is said about it
  bool generation_prompt = true;                               // false: no reply is asked for
};

// Where the text goes that a model writes next.
enum class Channel : std::uint8_t { reasoning, content };

// Pieces of a reply, in the order in which they were written. Texts are whole UTF-8 and not empty.
struct ReasoningDelta {
  std::string text;
};
struct ContentDelta {
  std::string text;
};
struct ToolCallDelta {  // a call begins
  std::int32_t index;   // 0, 1, ... in the order of the calls
  std::string id;       // made up here, unique
  std::string name;
};
struct ToolArgumentsDelta {
  std::int32_t index;
  std::string text;  // JSON when all of a call are put together, unless a limit cut the reply
};
using Delta = std::variant<ReasoningDelta, ContentDelta, ToolCallDelta, ToolArgumentsDelta>;

enum class ReplyFinish : std::uint8_t { stop, length, tool_calls };

// A reply put together from its deltas.
struct Reply {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> tool_calls;
};
void append_delta(const Delta& delta, Reply* reply);

}  // namespace penstock
