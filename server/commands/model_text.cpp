// SPDX-License-Identifier: Apache-2.0
#include "server/commands/model_text.h"

#include "engine/base/error.h"
#include "engine/model/model_config.h"

namespace penstock {

ModelText load_model_text(const std::string& model_dir) {
  const ModelConfig config = read_model_config(model_dir);
  ModelText text;
  text.tokenizer = std::make_unique<const Tokenizer>(Tokenizer::load(model_dir));
  // Otherwise the model could write ids that have no text.
  if (text.tokenizer->vocab_size() != config.vocab) {
    throw Error(ErrorCode::model,
                model_dir + ": the tokenizer has " + std::to_string(text.tokenizer->vocab_size()) +
                    " ids, but config.json says vocab_size " + std::to_string(config.vocab));
  }
  text.format = make_chat_format(config.architecture, *text.tokenizer);
  return text;
}

}  // namespace penstock
