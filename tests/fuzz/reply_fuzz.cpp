// SPDX-License-Identifier: Apache-2.0
//
// Any ids as a reply of K3 or Kimi-Linear, cut anywhere: texts are whole UTF-8, arguments follow
// their call, and the arguments of calls made of typed elements are JSON unless a limit cut them.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/text/chat_format.h"
#include "engine/text/utf8.h"

namespace penstock {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

// One id per byte, then the words of structure, then the markers of both formats.
constexpr const char* kWords[] = {"think",    "response", "tools",    "call",    "argument",
                                  "json",     "message",  " tool=\"", " key=\"", " type=\"",
                                  "number\"", "string\"", "object\"", "true",    "é"};
constexpr const char* kMarkers[] = {"<|open|>",
                                    "<|close|>",
                                    "<|sep|>",
                                    "<|end_of_msg|>",
                                    "[EOS]",
                                    "<|im_user|>",
                                    "<|im_assistant|>",
                                    "<|im_system|>",
                                    "<|im_middle|>",
                                    "<|im_end|>",
                                    "<|tool_calls_section_begin|>",
                                    "<|tool_calls_section_end|>",
                                    "<|tool_call_begin|>",
                                    "<|tool_call_argument_begin|>",
                                    "<|tool_call_end|>"};

std::string base64(std::string_view bytes) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8U | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out += i + k <= bytes.size() ? kAlphabet[group >> (18 - 6 * k) & 63U] : '=';
    }
  }
  return out;
}

Tokenizer make_tokenizer() {
  const std::filesystem::path dir = std::filesystem::temp_directory_path() /
                                    ("penstock-reply-fuzz-" + std::to_string(::getpid()));
  std::filesystem::create_directories(dir);
  std::ofstream ranks(dir / "tiktoken.model");
  int rank = 0;
  for (int byte = 0; byte < 256; ++byte) {
    ranks << base64(std::string(1, static_cast<char>(byte))) << ' ' << rank++ << '\n';
  }
  for (const char* word : kWords) ranks << base64(word) << ' ' << rank++ << '\n';
  ranks.close();
  std::ofstream config(dir / "tokenizer_config.json");
  config << "{\"added_tokens_decoder\":{";
  for (std::size_t i = 0; i < std::size(kMarkers); ++i) {
    config << (i > 0 ? "," : "") << '"' << rank++ << R"(":{"content":")" << kMarkers[i] << "\"}";
  }
  config << "}}";
  config.close();
  Tokenizer tokenizer = Tokenizer::load(dir.string());
  std::filesystem::remove_all(dir);
  return tokenizer;
}

struct Checker {
  std::int32_t calls = 0;

  static void check_text(const std::string& text) {
    require(!text.empty() && valid_utf8_prefix(text) == text.size());
  }
  void operator()(const ReasoningDelta& delta) const { check_text(delta.text); }
  void operator()(const ContentDelta& delta) const { check_text(delta.text); }
  void operator()(const ToolCallDelta& delta) {
    require(delta.index == calls++ && !delta.name.empty());
  }
  void operator()(const ToolArgumentsDelta& delta) const {
    check_text(delta.text);
    require(delta.index == calls - 1);
  }
};

void fuzz_reply(const ChatFormat& format, const ReplyOptions& options, ReplyCut cut,
                bool only_elements, const std::vector<Token>& ids) {
  const auto parser = format.make_reply_parser(options);
  Checker checker;
  Reply reply;
  std::vector<Delta> deltas;
  const auto take = [&] {
    for (const Delta& delta : deltas) {
      std::visit(checker, delta);
      append_delta(delta, &reply);
    }
    deltas.clear();
  };
  for (const Token id : ids) {
    parser->feed(id, &deltas);
    take();
  }
  const ReplyFinish finish = parser->finish(cut, &deltas);
  take();
  require(!options.drop_calls || reply.tool_calls.empty());
  require((finish == ReplyFinish::tool_calls) ==
          (finish != ReplyFinish::length && !reply.tool_calls.empty()));
  if (finish == ReplyFinish::length || !only_elements) return;
  for (const ToolCall& call : reply.tool_calls) {
    require(read_json(call.arguments, {.max_depth = 65, .max_keys = std::string::npos}, nullptr)
                .has_value());
  }
}

}  // namespace
}  // namespace penstock

// The first byte is made of switches; each other one is an id, those above 225 words and markers.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace penstock;
  static const Tokenizer tokenizer = make_tokenizer();
  static const auto k3 = make_chat_format("kimi-k3", tokenizer);
  static const auto linear = make_chat_format("kimi-linear", tokenizer);
  if (size == 0) return 0;
  const unsigned switches = data[0];
  const bool is_k3 = (switches & 1U) != 0;
  std::vector<Token> ids;
  bool only_elements = is_k3;
  for (std::size_t i = 1; i < size; ++i) {
    const Token id = data[i] <= 225 ? data[i] : 256 + data[i] - 226;
    ids.push_back(id);
    if (tokenizer.bytes(id) == "json" || data[i] == 'j') only_elements = false;
  }
  const ReplyOptions options{.open = (switches & 2U) != 0 ? Channel::reasoning : Channel::content,
                             .drop_calls = (switches & 4U) != 0};
  const ReplyCut cut = (switches & 8U) != 0 ? ReplyCut::limit : ReplyCut::stopped;
  fuzz_reply(is_k3 ? *k3 : *linear, options, cut, only_elements, ids);
  return 0;
}
