// Progress as text: what to leave out when the terminal is narrow.
#include <edgewise/train/progress.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace edgewise::train {
namespace {

constexpr int kShortestBar = 8, kLongestBar = 40;

template <typename... Values>
std::string format(const char* pattern, Values... values) {
  char buffer[128];
  std::snprintf(buffer, sizeof(buffer), pattern, values...);
  return buffer;
}

// Columns of UTF-8 text, one per code point: all our own signs and nearly all labels are that wide.
int columns(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string cut(std::string_view text, int width) {
  size_t end = 0;
  for (int used = 0; end < text.size(); ++end) {
    if ((text[end] & 0xC0) != 0x80 && ++used > width) break;
  }
  return std::string(text.substr(0, end));
}

// A control character in a value would break the line that we redraw.
std::string printable(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return result;
}

double fraction(const ProgressView& view) {
  if (view.total <= 0) return 0;
  return std::clamp(static_cast<double>(view.done) / static_cast<double>(view.total), 0.0, 1.0);
}

std::string count_text(const ProgressView& view) {
  if (view.total <= 0) return format("%lld %s", static_cast<long long>(view.done), view.unit.c_str());
  return format("%lld/%lld", static_cast<long long>(view.done), static_cast<long long>(view.total));
}

std::string percent_text(const ProgressView& view) {
  return view.total > 0 ? format("%d%%", static_cast<int>(fraction(view) * 100)) : "";
}

std::string time_text(const ProgressView& view) {
  if (view.over || (view.total > 0 && view.done >= view.total)) {
    std::string text = "in ";
    return text += format_duration(view.elapsed);
  }
  if (view.total <= 0 || view.rate <= 0) return format_duration(view.elapsed);
  return format_duration(std::round(static_cast<double>(view.total - view.done) / view.rate)) += " left";
}

std::string field_text(const ProgressFields::value_type& field) {
  std::string text = printable(field.first);
  text += '=';
  return text += printable(field.second);
}

std::string draw_bar(const ProgressView& view, int width, const ProgressLook& look) {
  const int full = static_cast<int>(fraction(view) * width);
  std::string done, rest;
  for (int i = 0; i < full; ++i) done += look.unicode ? "\u2501" : i + 1 == full && full < width ? ">" : "=";
  for (int i = full; i < width; ++i) rest += look.unicode ? "\u2501" : " ";
  if (look.colour && look.unicode) {
    std::string text = "\x1b[32m";
    text += done;
    text += "\x1b[90m";
    text += rest;
    return text += "\x1b[0m";
  }
  if (look.unicode) {
    rest.clear();
    for (int i = full; i < width; ++i) rest += "\u2500";
    return done += rest;
  }
  std::string text = "[";
  text += done;
  text += rest;
  return text += "]";
}

void add_part(std::string& line, const std::string& part, const char* gap = "  ") {
  if (part.empty()) return;
  if (!line.empty()) line += gap;
  line += part;
}

}  // namespace

std::string format_phase(std::string_view name, int64_t done, int64_t total) {
  std::string text(name);
  add_part(text, percent_text({.done = done, .total = total}), " ");
  return text;
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds > 1e9) return "--:--";
  const auto total = static_cast<long long>(std::max(0.0, seconds));
  const long long days = total / 86400, hours = total / 3600 % 24, minutes = total / 60 % 60;
  if (days > 0) return format("%lldd %02lld:%02lld", days, hours, minutes);
  if (hours > 0) return format("%lld:%02lld:%02lld", hours, minutes, total % 60);
  return format("%lld:%02lld", minutes, total % 60);
}

std::string format_rate(double rate, std::string_view unit) {
  const std::string name(unit);
  if (!(rate > 0) || !std::isfinite(rate)) return "";
  if (rate < 1) return format("%.3g s/%s", 1 / rate, name.c_str());
  return format(rate < 100 ? "%.1f %s/s" : "%.0f %s/s", rate, name.c_str());
}

// Most important first; what does not fit is left out from the end, and the bar takes the room that remains.
std::string format_progress_bar(const ProgressView& view, const ProgressLook& look) {
  std::string head = printable(view.label);
  add_part(head, count_text(view));
  add_part(head, percent_text(view), " ");
  if (columns(head) > look.width) return cut(head, std::max(0, look.width));

  std::string tail;
  const auto add_if_room = [&](const std::string& part, const char* gap = "  ") {
    std::string longer = tail;
    add_part(longer, part, gap);
    if (columns(head) + 2 + columns(longer) <= look.width) tail = longer;
  };
  add_if_room(printable(view.phase));
  add_if_room(time_text(view));
  // A phase takes the room of the rate, which stands still meanwhile; the bar keeps its own.
  if (view.phase.empty()) add_if_room(format_rate(view.rate, view.unit));
  for (size_t i = 0; i < view.fields.size(); ++i)
    add_if_room(field_text(view.fields[i]), i == 0 ? "  " : " ");

  std::string line = head;
  const int frame = look.unicode ? 0 : 2;
  const int room = look.width - columns(head) - (tail.empty() ? 0 : columns(tail) + 2) - 1 - frame;
  if (view.total > 0 && room >= kShortestBar) {
    line += ' ';
    line += draw_bar(view, std::min(room, kLongestBar), look);
  }
  add_part(line, tail);
  return line;
}

std::string format_progress_line(const ProgressView& view) {
  std::string line = printable(view.label);
  add_part(line, count_text(view), " ");
  if (view.total > 0) {
    std::string percent = "(";
    percent += percent_text(view);
    add_part(line, percent += ")", " ");
  }
  add_part(line, printable(view.phase), ", ");
  add_part(line, format_rate(view.rate, view.unit), ", ");
  add_part(line, time_text(view), ", ");
  for (const auto& field : view.fields) add_part(line, field_text(field), ", ");
  return line;
}

}  // namespace edgewise::train
