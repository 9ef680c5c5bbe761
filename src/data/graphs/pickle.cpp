// The stack machine of pickle protocols 0 to 2 with the instructions that arrays, matrices and lists of
// neighbours need.
#include "data/graphs/pickle.h"

#include <c10/util/Exception.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <unordered_map>

namespace edgewise::data {
namespace {

using Kind = PickleValue::Kind;

class Machine {
 public:
  Machine(std::span<const uint8_t> bytes, const std::string& origin) : bytes_(bytes), origin_(origin) {}

  std::shared_ptr<const PickleValue> run() {
    while (true) {
      const uint8_t code = take(1)[0];
      if (code == '.') return {values_, pop()};
      step(code);
    }
  }

 private:
  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    TORCH_CHECK_VALUE(false, origin_, ": byte ", at_, ": ", parts...);
  }

  std::span<const uint8_t> take(size_t count) {
    if (bytes_.size() - at_ < count) fail("the pickle ends in the middle of a value");
    const auto taken = bytes_.subspan(at_, count);
    at_ += count;
    return taken;
  }
  template <typename Number>
  Number little_endian() {
    Number number;
    std::memcpy(&number, take(sizeof(Number)).data(), sizeof(Number));
    return number;
  }
  std::string line() {
    std::string text;
    for (uint8_t c; (c = take(1)[0]) != '\n';) text += static_cast<char>(c);
    return text;
  }

  PicklePtr make(Kind kind) {
    values_->emplace_back().kind = kind;
    return &values_->back();
  }
  void push(PicklePtr value) { stack_.push_back(value); }
  void push_number(int64_t number) {
    push(make(Kind::kNumber));
    stack_.back()->number = number;
  }
  void push_bytes(size_t count) {
    const auto taken = take(count);
    push(make(Kind::kBytes));
    stack_.back()->bytes.assign(taken.begin(), taken.end());
  }
  PicklePtr pop() {
    if (stack_.empty() || (!marks_.empty() && stack_.size() == marks_.back()))
      fail("expected a value on the stack; it is empty");
    const PicklePtr value = stack_.back();
    stack_.pop_back();
    return value;
  }
  PickleValue& top() {
    if (stack_.empty()) fail("expected a value on the stack; it is empty");
    return *stack_.back();
  }
  std::vector<PicklePtr> since_mark() {
    if (marks_.empty()) fail("expected a mark on the stack; there is none");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PicklePtr> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }
  void push_tuple(size_t count) {
    PicklePtr tuple = make(Kind::kList);
    tuple->items.resize(count);
    while (count > 0) tuple->items[--count] = pop();
    push(tuple);
  }
  void call() {
    PicklePtr arguments = pop(), called = pop();
    if (called->kind != Kind::kClass) fail("expected a call of a Python class");
    // The only containers among them: a dictionary with a default.
    PicklePtr result = make(called->bytes == "collections defaultdict" ? Kind::kDict : Kind::kObject);
    result->items = {called, arguments};
    push(result);
  }
  void set_items(const std::vector<PicklePtr>& items) {
    if (items.size() % 2 != 0 || top().kind != Kind::kDict) fail("expected keys with values of a dictionary");
    for (size_t n = 0; n < items.size(); n += 2) top().entries.emplace_back(items[n], items[n + 1]);
  }
  void append(const std::vector<PicklePtr>& items) {
    if (top().kind != Kind::kList) fail("expected a list to append to");
    top().items.insert(top().items.end(), items.begin(), items.end());
  }

  void step(uint8_t code);

  std::span<const uint8_t> bytes_;
  const std::string& origin_;
  size_t at_ = 0;
  std::shared_ptr<std::deque<PickleValue>> values_ = std::make_shared<std::deque<PickleValue>>();
  std::vector<PicklePtr> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, PicklePtr> memo_;
};

void Machine::step(uint8_t code) {
  const auto remembered = [&](uint32_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end()) fail("expected a value to be remembered as ", place, "; none is");
    push(found->second);
  };
  switch (code) {
    case 0x80:  // PROTO
      if (const uint8_t version = take(1)[0]; version > 2)
        fail("expected a pickle of Python 2, protocol 2 at most; found protocol ", int{version});
      return;
    case 'c': {  // GLOBAL
      const std::string module = line(), name = line();
      push(make(Kind::kClass));
      stack_.back()->bytes = module + " " + name;
      return;
    }
    case 'q':  // BINPUT
      memo_[take(1)[0]] = (top(), stack_.back());
      return;
    case 'r':  // LONG_BINPUT
      memo_[little_endian<uint32_t>()] = (top(), stack_.back());
      return;
    case 'h':  // BINGET
      return remembered(take(1)[0]);
    case 'j':  // LONG_BINGET
      return remembered(little_endian<uint32_t>());
    case '(':  // MARK
      marks_.push_back(stack_.size());
      return;
    case ')':  // EMPTY_TUPLE
    case ']':  // EMPTY_LIST
      return push(make(Kind::kList));
    case '}':  // EMPTY_DICT
      return push(make(Kind::kDict));
    case 0x85:  // TUPLE1, TUPLE2, TUPLE3
    case 0x86:
    case 0x87:
      return push_tuple(code - 0x84u);
    case 't': {  // TUPLE
      PicklePtr tuple = make(Kind::kList);
      tuple->items = since_mark();
      return push(tuple);
    }
    case 'N':
      return push(make(Kind::kNone));
    case 0x88:  // NEWTRUE, NEWFALSE
    case 0x89:
      return push_number(code == 0x88);
    case 'K':  // BININT1
      return push_number(take(1)[0]);
    case 'M':  // BININT2
      return push_number(little_endian<uint16_t>());
    case 'J':  // BININT
      return push_number(little_endian<int32_t>());
    case 0x8a: {  // LONG1, little-endian two's complement
      const auto taken = take(take(1)[0]);
      if (taken.size() > 8) fail("expected numbers of at most 64 bits");
      int64_t number = taken.empty() || taken.back() < 0x80 ? 0 : -1;
      std::memcpy(&number, taken.data(), taken.size());
      return push_number(number);
    }
    case 'G': {  // BINFLOAT, big-endian
      const auto taken = take(8);
      uint64_t bits = 0;
      for (const uint8_t byte : taken) bits = bits << 8 | byte;
      push(make(Kind::kReal));
      std::memcpy(&stack_.back()->real, &bits, 8);
      return;
    }
    case 'U':  // SHORT_BINSTRING
      return push_bytes(take(1)[0]);
    case 'T':  // BINSTRING
    case 'X':  // BINUNICODE
      return push_bytes(little_endian<uint32_t>());
    case 0x81:  // NEWOBJ
    case 'R':   // REDUCE
      return call();
    case 'b': {  // BUILD
      const PicklePtr state = pop();
      top().state = state;
      return;
    }
    case 's': {  // SETITEM
      const PicklePtr value = pop(), key = pop();
      return set_items({key, value});
    }
    case 'u':  // SETITEMS
      return set_items(since_mark());
    case 'a': {  // APPEND
      const PicklePtr value = pop();
      return append({value});
    }
    case 'e':  // APPENDS
      return append(since_mark());
    default:
      fail("expected arrays, matrices, lists and dictionaries; found the instruction ", int{code});
  }
}

template <typename Element>
void widen(std::string_view raw, std::vector<double>& values) {
  for (size_t n = 0; n < values.size(); ++n) {
    Element element;
    std::memcpy(&element, raw.data() + n * sizeof(Element), sizeof(Element));
    values[n] = static_cast<double>(element);
  }
}

bool is_of_class(const PickleValue& value, std::string_view name) {
  return value.kind == Kind::kObject && !value.items.empty() && value.items[0]->bytes == name && value.state;
}

}  // namespace

const PickleValue& PickleValue::at(std::string_view key, const std::string& origin) const {
  for (const auto& [name, value] : entries)
    if (name->kind == Kind::kBytes && name->bytes == key) return *value;
  TORCH_CHECK_VALUE(false, origin, ": expected a value called '", std::string(key), "'; found none");
}

std::shared_ptr<const PickleValue> read_pickle(std::span<const uint8_t> bytes, const std::string& origin) {
  return Machine(bytes, origin).run();
}

PickledArray pickled_array(const PickleValue& value, const std::string& origin) {
  const auto check = [&](bool good) {
    TORCH_CHECK_VALUE(good, origin,
                      ": expected an array of numpy in C order: int8 to int64, float32 or float64");
  };
  // The state is (version, shape, dtype, is Fortran's order, bytes).
  check(is_of_class(value, "numpy.core.multiarray _reconstruct") && value.state->items.size() == 5);
  const PickleValue &shape = *value.state->items[1], &dtype = *value.state->items[2],
                    &raw = *value.state->items[4];
  check(raw.kind == Kind::kBytes && value.state->items[3]->number == 0 && shape.items.size() <= 2);
  check(is_of_class(dtype, "numpy dtype") && !dtype.items[1]->items.empty() && dtype.state->items.size() > 1);
  check(dtype.state->items[1]->bytes == "<" || dtype.state->items[1]->bytes == "|");
  PickledArray result;
  int64_t count = 1;
  for (const PicklePtr& size : shape.items) {
    check(size->kind == Kind::kNumber && size->number >= 0 && size->number < int64_t{1} << 31);
    result.shape.push_back(size->number);
    count *= size->number;
  }
  const std::string& kind = dtype.items[1]->items[0]->bytes;
  check(kind.size() == 2 && kind[1] >= '1' && kind[1] <= '8');
  TORCH_CHECK_VALUE(count <= static_cast<int64_t>(raw.bytes.size()), origin, ": expected an array of ", count,
                    " numbers; found ", raw.bytes.size(), " bytes");
  TORCH_CHECK_VALUE(static_cast<int64_t>(raw.bytes.size()) == count * (kind[1] - '0'), origin,
                    ": expected an array of ", count, " numbers of ", kind[1], " bytes; found ",
                    raw.bytes.size(), " bytes");
  result.values.resize(static_cast<size_t>(count));
  if (kind == "f4") return widen<float>(raw.bytes, result.values), result;
  if (kind == "f8") return widen<double>(raw.bytes, result.values), result;
  if (kind == "i1" || kind == "b1") return widen<int8_t>(raw.bytes, result.values), result;
  if (kind == "u1") return widen<uint8_t>(raw.bytes, result.values), result;
  if (kind == "i4") return widen<int32_t>(raw.bytes, result.values), result;
  check(kind == "i8");
  widen<int64_t>(raw.bytes, result.values);
  return result;
}

PickledMatrix pickled_matrix(const PickleValue& value, const std::string& origin) {
  TORCH_CHECK_VALUE(is_of_class(value, "scipy.sparse.csr csr_matrix"), origin,
                    ": expected a matrix of scipy in compressed rows (csr_matrix)");
  const PickleValue& shape = value.state->at("_shape", origin);
  TORCH_CHECK_VALUE(shape.items.size() == 2, origin, ": expected a matrix of two dimensions");
  for (const PicklePtr& size : shape.items)
    TORCH_CHECK_VALUE(size->kind == Kind::kNumber && size->number >= 0 && size->number < int64_t{1} << 31,
                      origin, ": expected a matrix of fewer than 2^31 rows and columns; found ",
                      size->kind == Kind::kNumber ? std::to_string(size->number) : "another value");
  const auto numbers = [&](const char* name) {
    const PickledArray array = pickled_array(value.state->at(name, origin), origin);
    std::vector<int64_t> result;
    for (const double number : array.values) {
      TORCH_CHECK_VALUE(number >= 0 && number < 0x1p53 && number == std::floor(number), origin, ": expected ",
                        name, " of whole numbers of at least 0; found ", number);
      result.push_back(static_cast<int64_t>(number));
    }
    return result;
  };
  PickledMatrix result{.rows = shape.items[0]->number,
                       .columns = shape.items[1]->number,
                       .offsets = numbers("indptr"),
                       .indices = numbers("indices"),
                       .values = pickled_array(value.state->at("data", origin), origin).values};
  const auto count = static_cast<int64_t>(result.indices.size());
  TORCH_CHECK_VALUE(result.rows >= 0 && result.rows < int64_t{1} << 31 && result.columns >= 0 &&
                        result.columns < int64_t{1} << 31,
                    origin, ": expected fewer than 2^31 rows and columns; found ", result.rows, " and ",
                    result.columns);
  TORCH_CHECK_VALUE(std::ssize(result.offsets) == result.rows + 1 && result.offsets.front() == 0 &&
                        result.offsets.back() == count && std::ssize(result.values) == count,
                    origin, ": expected ", result.rows + 1, " offsets up to ", count,
                    " and as many values; found ", result.offsets.size(), " and ", result.values.size());
  for (size_t row = 0; row + 1 < result.offsets.size(); ++row)
    TORCH_CHECK_VALUE(result.offsets[row] <= result.offsets[row + 1], origin, ": row ", row,
                      " of the matrix ends before it begins");
  for (const int64_t column : result.indices)
    TORCH_CHECK_INDEX(column >= 0 && column < result.columns, origin, ": expected columns in [0, ",
                      result.columns, "); found ", column);
  return result;
}

}  // namespace edgewise::data
