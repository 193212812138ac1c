// SPDX-License-Identifier: Apache-2.0
#include "engine/generation.h"

#include <utility>

namespace penstock {
namespace {

bool is_progress(const GenerationEvent& event) {
  return std::holds_alternative<PrefillEvent>(event) || std::holds_alternative<QueuedEvent>(event);
}

}  // namespace

void GenerationChannel::push(GenerationEvent event) {
  {
    const std::lock_guard lock(mutex_);
    if (!events_.empty() && is_progress(event) && events_.back().index() == event.index()) {
      events_.back() = std::move(event);
    } else {
      events_.push_back(std::move(event));
    }
  }
  ready_.notify_one();
}

void GenerationChannel::fail(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
  }
  ready_.notify_one();
}

Generation::Generation(std::shared_ptr<GenerationChannel> channel) : channel_(std::move(channel)) {}
Generation::Generation(Generation&&) noexcept = default;

Generation& Generation::operator=(Generation&& other) noexcept {
  if (this != &other) {
    if (channel_) channel_->stop.request_stop();
    channel_ = std::move(other.channel_);
  }
  return *this;
}

Generation::~Generation() {
  if (channel_) channel_->stop.request_stop();
}

std::optional<GenerationEvent> Generation::next(std::chrono::milliseconds timeout) {
  std::unique_lock lock(channel_->mutex_);
  channel_->ready_.wait_for(
      lock, timeout, [&] { return !channel_->events_.empty() || channel_->error_ != nullptr; });
  if (!channel_->events_.empty()) {
    GenerationEvent event = std::move(channel_->events_.front());
    channel_->events_.pop_front();
    return event;
  }
  if (channel_->error_) std::rethrow_exception(channel_->error_);
  return std::nullopt;
}

}  // namespace penstock
