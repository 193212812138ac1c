// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "server/api_error.h"
#include "server/openai_completions.h"
#include "tests/http/http_client.h"

namespace penstock::testing {
namespace {

ApiCall parse_call(const std::string& members) {
  return parse_completion_call(parse("{" + members + "}"), {});
}

TEST(CompletionRequest, TakesTextOrIdsAlsoInAList) {
  const auto text = [](const char* members) {
    return std::get<std::string>(parse_call(members).prompt);
  };
  EXPECT_EQ(text(R"("prompt":"a")"), "a");
  EXPECT_EQ(text(R"("prompt":["a"])"), "a");
  const auto ids = [](const char* members) {
    return std::get<std::vector<Token>>(parse_call(members).prompt);
  };
  EXPECT_EQ(ids(R"("prompt":[1,2,3.0])"), (std::vector<Token>{1, 2, 3}));
  EXPECT_EQ(ids(R"("prompt":[[7]])"), (std::vector<Token>{7}));
}

TEST(CompletionRequest, IgnoresWhatItHasNoUseFor) {
  const ApiCall call = parse_call(
      R"("prompt":"a","echo":false,"suffix":"","best_of":1,"logprobs":5,"temperature":0,
         "model":"x","max_tokens":16,"stop":["\n"],"user":"u")");
  EXPECT_EQ(call.max_tokens, 16);
  EXPECT_EQ(call.stops, std::vector<std::string>{"\n"});
}

TEST(CompletionRequest, NamesTheFieldThatIsWrong) {
  struct Wrong {
    const char* members;
    const char* param;
  };
  const Wrong cases[] = {
      {R"("x":1)", "prompt"},
      {R"("prompt":null)", "prompt"},
      {R"("prompt":5)", "prompt"},
      {R"("prompt":"")", "prompt"},
      {R"("prompt":[])", "prompt"},
      {R"("prompt":["a","b"])", "prompt"},
      {R"("prompt":[[1],[2]])", "prompt"},
      {R"("prompt":[""])", "prompt[0]"},
      {R"("prompt":[[]])", "prompt[0]"},
      {R"("prompt":[1,"a"])", "prompt[1]"},
      {R"("prompt":[1,2.5])", "prompt[1]"},
      {R"("prompt":[-1])", "prompt[0]"},
      {R"("prompt":[99999999999])", "prompt[0]"},
      {R"("prompt":[true])", "prompt[0]"},
      {R"("prompt":"a","echo":true)", "echo"},
      {R"("prompt":"a","suffix":"b")", "suffix"},
      {R"("prompt":"a","best_of":2)", "best_of"},
      {R"("prompt":"a","n":3)", "n"},
      {R"("prompt":"a","max_tokens":0)", "max_tokens"},
  };
  for (const Wrong& wrong : cases) {
    try {
      parse_call(wrong.members);
      ADD_FAILURE() << wrong.members;
    } catch (const ApiError& error) {
      EXPECT_EQ(error.details().status, 400) << wrong.members;
      EXPECT_EQ(error.details().param, wrong.param) << wrong.members << ": " << error.what();
    }
  }
}

}  // namespace
}  // namespace penstock::testing
