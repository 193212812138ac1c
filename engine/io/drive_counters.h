// SPDX-License-Identifier: Apache-2.0
//
// What the system says was really read: the proof that reads went to a drive and not to a cache.
// Plain functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

struct DriveCounter {
  std::string name;          // of the block device, as in /dev
  std::uint64_t read_bytes;  // by everybody, since the system started
};

// Of the block device `drive` (ByteSource::drive()); nullopt when the system does not list it
// (network and stacked file systems, macOS).
std::optional<DriveCounter> drive_counter(std::uint64_t drive);

// Bytes that this process has caused to be read from drives; nullopt when the system does not say.
std::optional<std::uint64_t> process_read_bytes();

// The two above from the text of /proc/diskstats and of /proc/self/io.
std::optional<DriveCounter> parse_diskstats(std::string_view text, unsigned major, unsigned minor);
std::optional<std::uint64_t> parse_process_io(std::string_view text);

}  // namespace penstock
