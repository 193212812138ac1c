// SPDX-License-Identifier: Apache-2.0
//
// Encoding speed of one thread: tokenizer_bench MODEL_DIR TEXT_FILE
// beside what the machine gives: a search for a byte that is not there, and the copy of the text.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <string>
#include <vector>

#include "engine/text/pretokenizer.h"
#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_files.h"
#include "engine/text/utf8.h"

namespace penstock {
namespace {

constexpr int kRuns = 15;

// CPU time, which other processes disturb less than the clock on the wall.
double seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

// Prints the best of kRuns runs in MB (10^6 bytes) per second; run() returns what it counted. Short
// runs are repeated: std::clock counts microseconds.
template <typename Run>
void measure(const char* name, std::size_t bytes, const Run& run) {
  constexpr double kLeastSeconds = 2e-3;
  double best = 1e30;
  std::size_t count = 0;
  for (int i = 0; i < kRuns; ++i) {
    const double start = seconds();
    int repeats = 0;
    double spent = 0;
    for (; spent < kLeastSeconds; spent = seconds() - start) {
      count = run();
      ++repeats;
    }
    best = std::min(best, spent / repeats);
  }
  std::printf("%-22s %9.1f MB/s  %12zu\n", name, static_cast<double>(bytes) / best / 1e6, count);
}

void run_all(const std::string& model_dir, const std::string& text_file) {
  const std::string text = replace_invalid_utf8(read_tokenizer_file(text_file));
  const double start = seconds();
  const Tokenizer tokenizer = Tokenizer::load(model_dir);
  std::printf("load %.3f s, text of %zu bytes\n", seconds() - start, text.size());

  measure("memchr (bytes)", text.size(), [&] {
    const void* found = std::memchr(text.data(), 0xFF, text.size());
    return found != nullptr ? std::size_t{0} : text.size();
  });
  std::string copy(text.size(), '\0');
  measure("memcpy (bytes)", text.size(), [&] {
    std::memcpy(copy.data(), text.data(), text.size());
    return static_cast<std::size_t>(copy.back());
  });
  measure("safety cuts (parts)", text.size(), [&] {
    SafetyCuts cuts(text);
    std::size_t parts = 0;
    while (!cuts.next().empty()) ++parts;
    return parts;
  });
  measure("pieces", text.size(), [&] {
    std::size_t pieces = 0;
    Pieces all(text);
    while (!all.next().empty()) ++pieces;
    return pieces;
  });
  std::vector<Token> ids;
  measure("encode (ids)", text.size(), [&] {
    ids.clear();
    tokenizer.encode_ordinary(text, &ids);
    return ids.size();
  });
  measure("decode (bytes)", text.size(), [&] {
    copy.clear();
    for (const Token id : ids) copy.append(tokenizer.bytes(id));
    return copy.size();
  });
  if (copy != text) std::printf("WRONG: decoding gives another text\n");
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: tokenizer_bench MODEL_DIR TEXT_FILE\n");
    return 2;
  }
  try {
    penstock::run_all(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tokenizer_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
