// SPDX-License-Identifier: Apache-2.0
#include "server/served_model.h"

#include <chrono>
#include <utility>

namespace penstock {

ServedModel::ServedModel(std::unique_ptr<const Tokenizer> tokenizer,
                         std::unique_ptr<const ChatFormat> format, const EngineOptions& options)
    : tokenizer_(std::move(tokenizer)), format_(std::move(format)), engine_(options) {}

ServerState::ServerState(std::string model_id)
    : model_id_(std::move(model_id)),
      started_s_(std::chrono::duration_cast<std::chrono::seconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count()) {}

void ServerState::set_model(std::shared_ptr<ServedModel> model) {
  const std::lock_guard lock(mutex_);
  model_ = std::move(model);
}

std::shared_ptr<ServedModel> ServerState::model() const {
  const std::lock_guard lock(mutex_);
  return model_;
}

}  // namespace penstock
