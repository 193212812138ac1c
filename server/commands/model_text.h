// SPDX-License-Identifier: Apache-2.0
//
// The words of a model: tokenizer and chat format of its folder. No weights are read.
// Immutable after construction.
#pragma once

#include <memory>
#include <string>

#include "engine/text/chat_format.h"
#include "engine/text/tokenizer.h"

namespace penstock {

struct ModelText {
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<const ChatFormat> format;  // refers to the tokenizer
};

// Reads config.json, tokenizer_config.json and tiktoken.model of a model folder. Throws
// Error(model) naming the file, also when the tokenizer has another number of ids than the model.
ModelText load_model_text(const std::string& model_dir);

}  // namespace penstock
