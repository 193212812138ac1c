// SPDX-License-Identifier: Apache-2.0
//
// K3's prompts under its published rank file, which the repository does not contain.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/text/xtml.h"
#include "tests/text/chat_fixtures.h"

namespace penstock {
namespace {

class PublishedK3 : public testing::Test {
 protected:
  void SetUp() override {
    const std::optional<std::string> dir = published_k3_dir();
    if (!dir) GTEST_SKIP() << "K3's published rank file is not here (set PENSTOCK_SHARED)";
    dir_ = *dir;
  }

  const Tokenizer& tokenizer() const {
    static const Tokenizer tokenizer = Tokenizer::load(dir_);
    return tokenizer;
  }

  std::string dir_;
};

std::uint64_t fnv(std::uint64_t hash, std::uint32_t word) {
  for (int i = 0; i < 4; ++i, word >>= 8U) hash = (hash ^ (word & 0xFFU)) * 0x100000001b3ULL;
  return hash;
}

std::string hex(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string hash_of(const std::vector<Token>& ids) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const Token id : ids) hash = fnv(hash, static_cast<std::uint32_t>(id));
  return hex(hash);
}

std::string hash_of(const std::vector<Segment>& segments) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const Segment& segment : segments) {
    hash = fnv(hash, static_cast<std::uint32_t>(segment.text.size()) |
                         (segment.markup ? 0x80000000U : 0U));
  }
  return hex(hash);
}

std::vector<Token> encode(const Tokenizer& tokenizer, const std::vector<Segment>& segments) {
  std::vector<Token> ids;
  for (const Segment& segment : segments) {
    const std::vector<Token> more = segment.markup ? tokenizer.encode_with_specials(segment.text)
                                                   : tokenizer.encode_ordinary(segment.text);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

TEST_F(PublishedK3, RendersThePublishedIds) {
  const JsonValue vectors = read_fixture(dir_ + "/chat_vectors.json");
  const auto format = make_chat_format("kimi-k3", tokenizer());
  EXPECT_EQ(vectors.find("cases")->items.size(), 9U);
  for (const JsonValue& item : vectors.find("cases")->items) {
    SCOPED_TRACE(item.find("name")->text);
    const Conversation chat = conversation_of(*item.find("input"));
    std::string text;
    for (const Segment& segment : xtml_prompt(chat).segments) text += segment.text;
    EXPECT_EQ(text, item.find("rendered")->text);
    std::vector<Token> expected;
    for (const JsonValue& id : item.find("ids")->items) expected.push_back(std::stoi(id.text));
    EXPECT_EQ(format->render(chat).ids, expected);
  }
}

// One case has image blocks of its own making, and a placeholder inside a text.
std::vector<Segment> segments_of(const JsonValue& input) {
  JsonValue request = input;
  const JsonValue* images = input.find("image_prompts");
  if (images != nullptr) {
    std::vector<JsonValue>& parts = request.members[0].value.items[1].members[1].value.items;
    std::string& text = parts[2].members[1].value.text;
    const std::string placeholder = "<|kimi_image_placeholder|>";
    const std::size_t at = text.find(placeholder);
    JsonValue rest = parts[2];
    rest.members[1].value.text = text.substr(at + placeholder.size());
    text.resize(at);
    parts.push_back(parts[1]);
    parts.push_back(rest);
  }
  std::vector<Segment> segments = xtml_prompt(conversation_of(request)).segments;
  std::size_t used = 0;
  for (Segment& segment : segments) {
    if (images != nullptr && segment.text.rfind("<|media_begin|>", 0) == 0) {
      segment.text = images->items[used++].text;
    }
  }
  return segments;
}

TEST_F(PublishedK3, MatchesThePublishedHashes) {
  const JsonValue vectors = read_fixture(dir_ + "/chat_vectors.json");
  EXPECT_EQ(vectors.find("hash_cases")->items.size(), 4U);
  for (const JsonValue& item : vectors.find("hash_cases")->items) {
    SCOPED_TRACE(item.find("name")->text);
    const JsonValue* input = item.find("input");
    if (input == nullptr) {  // it refers to the third of the other cases
      input = vectors.find("cases")->items[2].find("input");
    }
    const std::vector<Segment> segments = segments_of(*input);
    EXPECT_EQ(std::to_string(segments.size()), item.find("segments")->text);
    EXPECT_EQ(hash_of(segments), item.find("segment_fnv")->text);
    const std::vector<Token> ids = encode(tokenizer(), segments);
    EXPECT_EQ(std::to_string(ids.size()), item.find("ids")->text);
    EXPECT_EQ(hash_of(ids), item.find("token_fnv")->text);
  }
}

// The request's fields as the vendor contract reads them.
Conversation contract_conversation(const JsonValue& request) {
  JsonValue builder = request;
  std::erase_if(builder.members, [](const JsonMember& m) { return m.key == "thinking"; });
  Conversation chat = conversation_of(builder);
  chat.effort = ThinkingEffort::max;
  const JsonValue* thinking = request.find("thinking");
  if (thinking != nullptr && thinking->find("type")->text == "disabled") chat.thinking = false;
  const JsonValue* effort = thinking == nullptr ? nullptr : thinking->find("effort");
  if (effort == nullptr) effort = request.find("reasoning_effort");
  if (effort != nullptr && effort->text == "high") chat.effort = ThinkingEffort::high;
  return chat;
}

TEST_F(PublishedK3, CountsAsTheVendorDoes) {
  const JsonValue cases = read_fixture(dir_ + "/contract_cases.json");
  const auto format = make_chat_format("kimi-k3", tokenizer());
  EXPECT_EQ(cases.find("cases")->items.size(), 4U);
  for (const JsonValue& item : cases.find("cases")->items) {
    SCOPED_TRACE(item.find("name")->text);
    const RenderedPrompt prompt = format->render(contract_conversation(*item.find("request")));
    EXPECT_EQ(std::to_string(prompt.ids.size()), item.find("rendered_ids")->text);
    EXPECT_EQ(std::to_string(prompt.prompt_tokens), item.find("prompt_tokens")->text);
  }
}

// The worked examples of the format's description that are not among the vectors.
TEST_F(PublishedK3, RendersTheWorkedExamples) {
  const auto format = make_chat_format("kimi-k3", tokenizer());
  Conversation chat;
  chat.effort = std::nullopt;
  chat.messages = {{.role = Role::user,
                    .content = {{.kind = ContentPart::Kind::image, .width = 640, .height = 480},
                                {.text = "What is this?"}}}};
  const std::vector<Token> image = format->render(chat).ids;
  for (const Token marker : {163602, 163603, 163605, 163604}) {
    EXPECT_EQ(std::count(image.begin(), image.end(), marker), 1) << marker;
  }
  EXPECT_EQ(format->stop_ids(), (std::vector<Token>{163586, 163585}));
}

TEST_F(PublishedK3, RendersKimiLinearsExamples) {
  const Tokenizer linear = kimi_linear_tokenizer(dir_);
  const auto format = make_chat_format("kimi-linear", linear);
  Conversation chat;
  chat.messages = {{.role = Role::user, .content = {{.text = "Hi!"}}}};
  std::vector<Token> expected = {163587, 2482, 163601, 18699, 0, 163586, 163588, 69702, 163601};
  const RenderedPrompt prompt = format->render(chat);
  EXPECT_EQ(prompt.ids, expected);
  EXPECT_EQ(prompt.prompt_tokens, 9);

  chat.messages.insert(
      chat.messages.begin(),
      {.role = Role::system, .content = {{.text = "You are a helpful assistant."}}});
  const std::vector<Token> system = {163594, 14062, 163601, 3900, 554,
                                     261,    13205, 26626,  13,   163586};
  expected.insert(expected.begin(), system.begin(), system.end());
  EXPECT_EQ(format->render(chat).ids, expected);
  EXPECT_EQ(format->render(chat).leading_end, 10);
}

}  // namespace
}  // namespace penstock
