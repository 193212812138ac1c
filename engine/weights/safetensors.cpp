// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

namespace penstock {
namespace {

constexpr std::uint64_t kLengthBytes = 8;  // the header length before the JSON
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kMaxNameBytes = 512;  // published names stay below 100
constexpr std::size_t kMaxDimensions = 8;

struct TypeRow {
  TensorType type;
  const char* name;
  std::uint64_t bytes;
};
constexpr std::array<TypeRow, 7> kTypes = {{{TensorType::f32, "F32", 4},
                                            {TensorType::bf16, "BF16", 2},
                                            {TensorType::f16, "F16", 2},
                                            {TensorType::u8, "U8", 1},
                                            {TensorType::i8, "I8", 1},
                                            {TensorType::i32, "I32", 4},
                                            {TensorType::i64, "I64", 8}}};

const TypeRow& row_of(TensorType type) {
  return *std::find_if(kTypes.begin(), kTypes.end(),
                       [type](const TypeRow& row) { return row.type == type; });
}

// One tensor as read; its name and dimensions lie in the arenas of the handler.
struct Record {
  std::size_t name_begin = 0;
  std::size_t name_bytes = 0;
  std::size_t dims_begin = 0;
  std::size_t dims = 0;
  std::uint64_t begin = 0;  // relative to the data block
  std::uint64_t end = 0;
  const TypeRow* type = nullptr;
};

// SAX handler of a header: no tree is built, since a K3 header has 5,400 tensors and there are 92.
// Its functions have the names and signatures that nlohmann::json::sax_parse calls.
class HeaderHandler {
 public:
  using Json = nlohmann::json;

  explicit HeaderHandler(const std::string& file) : file_(file) {}

  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a boolean"); }
  bool number_integer(Json::number_integer_t value) { return unexpected(std::to_string(value)); }
  bool number_float(Json::number_float_t, const std::string& text) { return unexpected(text); }
  bool binary(Json::binary_t&) { return unexpected("binary data"); }

  bool number_unsigned(Json::number_unsigned_t value) {
    if (skipping()) return true;
    if (place_ == Place::shape) {
      if (value > static_cast<std::uint64_t>(INT64_MAX)) return unexpected(std::to_string(value));
      if (record_.dims == kMaxDimensions) {
        fail("has more than " + std::to_string(kMaxDimensions) + " dimensions");
      }
      dims_.push_back(static_cast<std::int64_t>(value));
      ++record_.dims;
      return true;
    }
    if (place_ == Place::offsets && offsets_ < 2) {
      (offsets_++ == 0 ? record_.begin : record_.end) = value;
      return true;
    }
    return unexpected(std::to_string(value));
  }

  bool string(Json::string_t& value) {
    if (skipping()) return true;
    if (place_ != Place::field || field_ != Field::dtype) return unexpected("a string");
    const auto* row = std::find_if(kTypes.begin(), kTypes.end(),
                                   [&](const TypeRow& type) { return value == type.name; });
    if (row == kTypes.end()) fail("has the unknown dtype " + Json(value).dump().substr(0, 32));
    record_.type = row;
    place_ = Place::tensor;
    return true;
  }

  bool start_object(std::size_t) {
    if (skipping()) return ++skip_depth_ > 0;
    if (place_ == Place::start) {
      place_ = Place::file;
      return true;
    }
    if (place_ == Place::metadata) return ++skip_depth_ > 0;
    if (place_ != Place::name) return unexpected("an object");
    place_ = Place::tensor;
    return true;
  }

  bool key(Json::string_t& value) {
    if (skipping()) return true;
    if (place_ == Place::file) {
      start_tensor(value);
    } else {
      start_field(value);
    }
    return true;
  }

  bool end_object() {
    if (skipping()) return end_skipped();
    if (place_ == Place::tensor) finish_tensor();
    place_ = Place::file;
    return true;
  }

  bool start_array(std::size_t) {
    if (skipping()) return ++skip_depth_ > 0;
    if (place_ != Place::field || field_ == Field::dtype) return unexpected("an array");
    place_ = field_ == Field::shape ? Place::shape : Place::offsets;
    return true;
  }

  bool end_array() {
    if (skipping()) return end_skipped();
    if (place_ == Place::offsets && offsets_ != 2) fail("has fewer than two data_offsets");
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception&) {
    throw Error(ErrorCode::model, file_ + ": the header is not valid JSON at byte " +
                                      std::to_string(kLengthBytes + position));
  }

  // Sorts into file order and checks that the data block is covered without gap or overlap.
  void check_layout(std::uint64_t data_start, std::uint64_t file_bytes);
  void visit(std::uint64_t data_start,
             const std::function<void(const SafetensorsEntry&)>& visit) const;

 private:
  enum class Place { start, file, name, metadata, tensor, field, shape, offsets };
  enum class Field { dtype, shape, data_offsets };

  std::string_view name_of(const Record& record) const {
    return std::string_view(names_).substr(record.name_begin, record.name_bytes);
  }
  std::span<const std::int64_t> shape_of(const Record& record) const {
    return std::span(dims_).subspan(record.dims_begin, record.dims);
  }
  [[noreturn]] void fail(const Record& record, const std::string& problem) const {
    throw Error(ErrorCode::model,
                file_ + ": tensor " + std::string(name_of(record)) + " " + problem);
  }
  [[noreturn]] void fail(const std::string& problem) const { fail(record_, problem); }

  bool skipping() const { return skip_depth_ > 0; }
  bool end_skipped() {
    if (--skip_depth_ == 0) place_ = Place::file;
    return true;
  }

  bool unexpected(const std::string& found);
  void start_tensor(const std::string& name);
  void start_field(const std::string& name);
  void finish_tensor();

  const std::string& file_;
  std::string names_;
  std::vector<std::int64_t> dims_;
  std::vector<Record> records_;
  Record record_;  // the tensor being read
  Place place_ = Place::start;
  Field field_ = Field::dtype;
  bool seen_[3] = {};  // by Field
  int offsets_ = 0;
  std::size_t skip_depth_ = 0;  // open objects and arrays of __metadata__
};

bool HeaderHandler::unexpected(const std::string& found) {
  if (skipping()) return true;
  switch (place_) {
    case Place::start:
      throw Error(ErrorCode::model, file_ + ": the header is " + found + ", expected an object");
    case Place::metadata:
      throw Error(ErrorCode::model, file_ + ": __metadata__ is " + found + ", expected an object");
    case Place::shape: fail("has " + found + " in its shape, expected a dimension");
    case Place::offsets: fail("has " + found + " in data_offsets, expected two byte offsets");
    case Place::field: {
      constexpr const char* kExpected[] = {"dtype, expected a string", "shape, expected an array",
                                           "data_offsets, expected an array"};
      fail("has " + found + " as " + kExpected[static_cast<int>(field_)]);
    }
    default: fail("is " + found + ", expected an object");
  }
}

void HeaderHandler::start_tensor(const std::string& name) {
  if (name == "__metadata__") {
    place_ = Place::metadata;
    return;
  }
  // Names go into messages of one line, so nothing unprintable passes here.
  const bool printable = std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
  if (name.empty() || name.size() > kMaxNameBytes || !printable) {
    throw Error(ErrorCode::model, file_ + ": a tensor name of " + std::to_string(name.size()) +
                                      " bytes, expected 1 to " + std::to_string(kMaxNameBytes) +
                                      " printable ones");
  }
  record_ =
      Record{.name_begin = names_.size(), .name_bytes = name.size(), .dims_begin = dims_.size()};
  names_ += name;
  std::fill(std::begin(seen_), std::end(seen_), false);
  offsets_ = 0;
  place_ = Place::name;
}

void HeaderHandler::start_field(const std::string& name) {
  if (name == "dtype") {
    field_ = Field::dtype;
  } else if (name == "shape") {
    field_ = Field::shape;
  } else if (name == "data_offsets") {
    field_ = Field::data_offsets;
  } else {
    fail("has an unknown field besides dtype, shape and data_offsets");
  }
  bool& seen = seen_[static_cast<int>(field_)];
  if (seen) fail("has " + name + " twice");
  seen = true;
  place_ = Place::field;
}

void HeaderHandler::finish_tensor() {
  constexpr const char* kNames[] = {"dtype", "shape", "data_offsets"};
  for (int field = 0; field < 3; ++field) {
    if (!seen_[field]) fail(std::string("has no ") + kNames[field]);
  }
  std::uint64_t bytes = record_.type->bytes;
  bool fits = true;
  for (std::size_t i = 0; i < record_.dims; ++i) {
    const auto dimension = static_cast<std::uint64_t>(dims_[record_.dims_begin + i]);
    fits = fits && !__builtin_mul_overflow(bytes, dimension, &bytes);
  }
  const auto described = [&] { return describe_tensor(record_.type->type, shape_of(record_)); };
  if (!fits) fail("is " + described() + ", which is more bytes than 64 bits can count");
  if (record_.end < record_.begin) {
    fail("has data_offsets [" + std::to_string(record_.begin) + ", " + std::to_string(record_.end) +
         "], which end before they begin");
  }
  if (record_.end - record_.begin != bytes) {
    fail("has " + std::to_string(record_.end - record_.begin) + " bytes, but " + described() +
         " takes " + std::to_string(bytes));
  }
  records_.push_back(record_);
}

void HeaderHandler::check_layout(std::uint64_t data_start, std::uint64_t file_bytes) {
  const auto by_place = [](const Record& a, const Record& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  };
  if (!std::is_sorted(records_.begin(), records_.end(), by_place)) {
    std::sort(records_.begin(), records_.end(), by_place);
  }
  const std::uint64_t data_bytes = file_bytes - data_start;
  std::unordered_set<std::string_view> names;
  names.reserve(records_.size());
  std::uint64_t end = 0;  // of the tensor before
  for (const Record& record : records_) {
    if (!names.insert(name_of(record)).second) fail(record, "is there twice");
    if (record.end > data_bytes) {
      // Saturated: the sum of an offset near 2^64 must not come out small.
      std::uint64_t absolute = 0;
      if (__builtin_add_overflow(data_start, record.end, &absolute)) absolute = UINT64_MAX;
      fail(record, "ends at " + std::to_string(absolute) + " but the file has " +
                       std::to_string(file_bytes) + " bytes");
    }
    if (record.begin != end) {
      fail(record, "begins at " + std::to_string(data_start + record.begin) +
                       " but the data before it ends at " + std::to_string(data_start + end));
    }
    end = record.end;
  }
  if (end != data_bytes) {
    throw Error(ErrorCode::model, file_ + ": the last tensor ends at " +
                                      std::to_string(data_start + end) + " but the file has " +
                                      std::to_string(file_bytes) + " bytes");
  }
}

void HeaderHandler::visit(std::uint64_t data_start,
                          const std::function<void(const SafetensorsEntry&)>& visit) const {
  std::vector<std::int64_t> shape;  // reused, as most of half a million tensors are experts'
  for (const Record& record : records_) {
    const std::span<const std::int64_t> dims = shape_of(record);
    shape.assign(dims.begin(), dims.end());
    visit({.name = name_of(record),
           .type = record.type->type,
           .shape = shape,
           .offset = data_start + record.begin,
           .bytes = record.end - record.begin});
  }
}

}  // namespace

const char* tensor_type_name(TensorType type) {
  return row_of(type).name;
}

std::uint64_t tensor_bytes(TensorType type, std::span<const std::int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), row_of(type).bytes,
                         [](std::uint64_t product, std::int64_t dimension) {
                           return product * static_cast<std::uint64_t>(dimension);
                         });
}

std::string describe_tensor(TensorType type, std::span<const std::int64_t> shape) {
  std::string text = std::string(tensor_type_name(type)) + " [";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

void parse_safetensors_header(std::string_view json, const std::string& file,
                              std::uint64_t file_bytes,
                              const std::function<void(const SafetensorsEntry&)>& visit) {
  const std::uint64_t data_start = kLengthBytes + json.size();
  if (data_start > file_bytes) {
    throw Error(ErrorCode::model, file + ": the header ends at " + std::to_string(data_start) +
                                      " but the file has " + std::to_string(file_bytes) + " bytes");
  }
  HeaderHandler handler(file);
  nlohmann::json::sax_parse(json.data(), json.data() + json.size(), &handler);
  handler.check_layout(data_start, file_bytes);
  handler.visit(data_start, visit);
}

void read_safetensors_header(const ByteSource& source,
                             const std::function<void(const SafetensorsEntry&)>& visit) {
  const std::uint64_t file_bytes = source.size();
  if (file_bytes < kLengthBytes) {
    throw Error(ErrorCode::model, source.name() + ": has " + std::to_string(file_bytes) +
                                      " bytes, too few for a safetensors file");
  }
  std::array<std::byte, kLengthBytes> length_bytes;
  source.read(0, length_bytes);
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8U | std::to_integer<std::uint64_t>(length_bytes[i]);
  }
  if (length < 2 || length > kMaxHeaderBytes) {
    throw Error(ErrorCode::model, source.name() + ": a header of " + std::to_string(length) +
                                      " bytes, expected 2 to " + std::to_string(kMaxHeaderBytes));
  }
  // Before the allocation: it must not be larger than the file.
  if (length > file_bytes - kLengthBytes) {
    throw Error(ErrorCode::model, source.name() + ": the header ends at " +
                                      std::to_string(kLengthBytes + length) + " but the file has " +
                                      std::to_string(file_bytes) + " bytes");
  }
  std::string json(length, '\0');
  source.read(kLengthBytes, std::as_writable_bytes(std::span(json)));
  parse_safetensors_header(json, source.name(), file_bytes, visit);
}

void sort_as_published(std::vector<LayoutTensor>& tensors) {
  // The enumerators of the published types are in the order of the files.
  static_assert(TensorType::f32 < TensorType::bf16 && TensorType::bf16 < TensorType::u8);
  std::sort(tensors.begin(), tensors.end(), [](const LayoutTensor& a, const LayoutTensor& b) {
    return std::tie(a.type, a.name) < std::tie(b.type, b.name);
  });
}

SafetensorsHeader make_safetensors_header(std::vector<LayoutTensor> tensors) {
  sort_as_published(tensors);
  std::string json = "{";
  std::uint64_t end = 0;
  for (const LayoutTensor& tensor : tensors) {
    const std::uint64_t begin = end;
    end += tensor_bytes(tensor.type, tensor.shape);
    json += json.size() > 1 ? "," : "";
    json += nlohmann::json(tensor.name).dump() + R"(:{"dtype":")" + tensor_type_name(tensor.type) +
            R"(","shape":)" + nlohmann::json(tensor.shape).dump() + R"(,"data_offsets":[)" +
            std::to_string(begin) + "," + std::to_string(end) + "]}";
  }
  json += "}";
  json.append(round_up(json.size(), kLengthBytes) - json.size(), ' ');
  const std::uint64_t file_bytes = kLengthBytes + json.size() + end;
  return {std::move(json), file_bytes};
}

}  // namespace penstock
