#include "data/readers/pickle.h"

#include <c10/util/Exception.h>

namespace edgewise::data {

namespace {

std::string hex(uint8_t byte) {
  constexpr const char* kDigits = "0123456789abcdef";
  return {'0', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
}

PicklePtr make(PickleKind kind) {
  auto value = std::make_shared<PickleValue>();
  value->kind = kind;
  return value;
}

PicklePtr make_number(int64_t number) {
  auto value = make(PickleKind::kNumber);
  value->number = number;
  return value;
}

PicklePtr make_text(std::string text) {
  auto value = make(PickleKind::kText);
  value->text = std::move(text);
  return value;
}

// The stack machine of the format, up to protocol 4.
class Machine {
 public:
  Machine(std::span<const uint8_t> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  PicklePtr run() {
    for (;;) {
      const uint8_t code = byte();
      if (code == '.') return pop();
      step(code);
    }
  }

 private:
  void step(uint8_t code) {
    switch (code) {
      case 0x80:  // PROTO
        check(byte() <= 4, "expected a pickle of protocol 4 at most");
        return;
      case 0x95:  // FRAME
        number(8);
        return;
      case '(':
        marks_.push_back(stack_.size());
        return;
      case 'N':
        return push(make(PickleKind::kNone));
      case 0x88:
        return push(make_number(1));
      case 0x89:
        return push(make_number(0));
      case 'K':
        return push(make_number(number(1)));
      case 'M':
        return push(make_number(number(2)));
      case 'J':
        return push(make_number(static_cast<int32_t>(number(4))));
      case 0x8a: {  // LONG1
        const auto size = static_cast<size_t>(number(1));
        check(size <= 8, "expected a whole number of 64 bits at most");
        int64_t value = number(size);
        if (size > 0 && size < 8 && (value >> (8 * size - 1) & 1)) value -= int64_t{1} << (8 * size);
        return push(make_number(value));
      }
      case 'U':
      case 'C':
      case 0x8c:
        return push(make_text(text(number(1))));
      case 'T':
      case 'B':
      case 'X':
        return push(make_text(text(number(4))));
      case 0x8e:
        return push(make_text(text(number(8))));
      case ']':
        return push(make(PickleKind::kList));
      case '}':
        return push(make(PickleKind::kDict));
      case ')':
        return push(make(PickleKind::kTuple));
      case 0x85:
      case 0x86:
      case 0x87:
        return push_tuple(stack_size_less(size_t{code} - 0x84));
      case 't':
        return push_tuple(pop_mark());
      case 'a':
        return append(stack_size_less(1), PickleKind::kList);
      case 'e':
        return append(pop_mark(), PickleKind::kList);
      case 's':
        return append(stack_size_less(2), PickleKind::kDict);
      case 'u':
        return append(pop_mark(), PickleKind::kDict);
      case 'q':
        memo_[number(1)] = top();
        return;
      case 'r':
        memo_[number(4)] = top();
        return;
      case 0x94: {  // MEMOIZE
        const auto next = static_cast<int64_t>(memo_.size());
        memo_[next] = top();
        return;
      }
      case 'h':
        return push(recall(number(1)));
      case 'j':
        return push(recall(number(4)));
      case 'c': {
        const std::string module = line();
        return push_global(module, line());
      }
      case 0x93: {  // STACK_GLOBAL
        const PicklePtr name = pop(), module = pop();
        return push_global(module->text, name->text);
      }
      case 'R':
        return reduce();
      case 'b':
        return build();
      default:
        check(false, "expected an instruction for plain data; found " + hex(code));
    }
  }

  void push_global(const std::string& module, const std::string& name) {
    auto value = make(PickleKind::kGlobal);
    value->text = module + " " + name;
    push(value);
  }

  // Calls of the few functions that make up numpy arrays and, in protocol 2, bytes.
  void reduce() {
    const PicklePtr arguments = pop(), function = pop();
    check(function->kind == PickleKind::kGlobal && arguments->kind == PickleKind::kTuple,
          "expected a function and its arguments");
    const std::string& name = function->text;
    if (name == "numpy.core.multiarray _reconstruct" || name == "numpy._core.multiarray _reconstruct") {
      return push(make(PickleKind::kArray));
    }
    if (name == "numpy dtype") {
      check(!arguments->items.empty(), "expected numpy.dtype with a name");
      auto dtype = make(PickleKind::kOther);
      dtype->dtype = arguments->items[0]->text;
      return push(dtype);
    }
    if (name == "_codecs encode") {
      check(!arguments->items.empty(), "expected _codecs.encode with a text");
      return push(make_text(latin1(arguments->items[0]->text)));
    }
    check(false, "expected plain data; found a call of " + name);
  }

  // The state of an array: version, shape, dtype, Fortran order, elements. That of a dtype only fixes its
  // byte order.
  void build() {
    const PicklePtr state = pop(), object = top();
    if (object->kind == PickleKind::kOther) {
      check(state->items.size() >= 2 && state->items[1]->text != ">", "expected little-endian numbers");
      return;
    }
    check(object->kind == PickleKind::kArray && state->kind == PickleKind::kTuple && state->items.size() == 5,
          "expected the state of a numpy array");
    for (const PicklePtr& size : state->items[1]->items) object->shape.push_back(size->number);
    object->dtype = state->items[2]->dtype;
    check(state->items[3]->number == 0 || object->shape.size() < 2, "expected an array in C order");
    check(state->items[4]->kind == PickleKind::kText, "expected an array of plain elements");
    object->text = state->items[4]->text;
  }

  // UTF-8 of characters below 256 back to bytes.
  std::string latin1(const std::string& utf8) const {
    std::string result;
    for (size_t i = 0; i < utf8.size(); ++i) {
      const auto lead = static_cast<uint8_t>(utf8[i]);
      if (lead < 0x80) {
        result += utf8[i];
        continue;
      }
      check((lead == 0xc2 || lead == 0xc3) && i + 1 < utf8.size(), "expected a latin-1 text");
      result += static_cast<char>(((lead & 3) << 6) | (static_cast<uint8_t>(utf8[++i]) & 0x3f));
    }
    return result;
  }

  void push_tuple(size_t begin) {
    auto value = make(PickleKind::kTuple);
    value->items = take(begin);
    push(value);
  }

  void append(size_t begin, PickleKind kind) {
    std::vector<PicklePtr> items = take(begin);
    check(top()->kind == kind && (kind == PickleKind::kList || items.size() % 2 == 0),
          "expected a list or dict below its items");
    auto& all = top()->items;
    all.insert(all.end(), items.begin(), items.end());
  }

  std::vector<PicklePtr> take(size_t begin) {
    std::vector<PicklePtr> items(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin);
    return items;
  }

  size_t stack_size_less(size_t count) const {
    check(stack_.size() >= count, "expected more values on the stack");
    return stack_.size() - count;
  }

  size_t pop_mark() {
    check(!marks_.empty() && marks_.back() <= stack_.size(), "expected a mark on the stack");
    const size_t begin = marks_.back();
    marks_.pop_back();
    return begin;
  }

  void push(PicklePtr value) { stack_.push_back(std::move(value)); }
  const PicklePtr& top() const {
    check(!stack_.empty(), "expected a value on the stack");
    return stack_.back();
  }
  PicklePtr pop() {
    PicklePtr value = top();
    stack_.pop_back();
    return value;
  }
  PicklePtr recall(int64_t key) const {
    const auto found = memo_.find(key);
    check(found != memo_.end(), "expected a value remembered before");
    return found->second;
  }

  uint8_t byte() {
    check(position_ < bytes_.size(), "expected more; the file ends too early");
    return bytes_[position_++];
  }
  int64_t number(size_t size) {
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) value |= uint64_t{byte()} << (8 * i);
    return static_cast<int64_t>(value);
  }
  std::string text(int64_t size) {
    check(size >= 0 && static_cast<uint64_t>(size) <= bytes_.size() - position_,
          "expected a text within the file; it claims " + std::to_string(size) + " bytes");
    std::string result(reinterpret_cast<const char*>(bytes_.data()) + position_, static_cast<size_t>(size));
    position_ += static_cast<size_t>(size);
    return result;
  }
  std::string line() {
    std::string result;
    for (uint8_t c = byte(); c != '\n'; c = byte()) result += static_cast<char>(c);
    return result;
  }

  void check(bool holds, const std::string& what) const {
    TORCH_CHECK_VALUE(holds, name_, ": at byte ", position_, " of the pickle: ", what);
  }

  std::span<const uint8_t> bytes_;
  const std::string& name_;
  size_t position_ = 0;
  std::vector<PicklePtr> stack_;
  std::vector<size_t> marks_;
  std::map<int64_t, PicklePtr> memo_;
};

}  // namespace

const PickleValue* PickleValue::find(const std::string& key) const {
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i]->kind == PickleKind::kText && items[i]->text == key) return items[i + 1].get();
  }
  return nullptr;
}

PicklePtr read_pickle(std::span<const uint8_t> bytes, const std::string& name) {
  return Machine(bytes, name).run();
}

}  // namespace edgewise::data
