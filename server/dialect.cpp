// SPDX-License-Identifier: Apache-2.0
#include "server/dialect.h"

#include <array>

#include "server/openai_chat.h"
#include "server/openai_completions.h"

namespace penstock {

std::span<const Dialect> dialects() {
  static constexpr std::array<Dialect, 2> kDialects{{
      {"/chat/completions", parse_chat_call, make_chat_writer},
      {"/completions", parse_completion_call, make_completion_writer},
  }};
  return kDialects;
}

}  // namespace penstock
