#include "predict/standard_input.h"

#include <c10/util/Exception.h>
#include <edgewise/data/examples/table_rows.h>

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace edgewise::app {

void each_line_of_input(const std::string& command, const std::function<void(std::string_view)>& take,
                        const std::function<void()>& idle) {
  std::string text(size_t{1} << 16, '\0'), rest;
  for (;;) {
    pollfd ready{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 0) == 0) idle();
    const ssize_t got = ::read(STDIN_FILENO, text.data(), text.size());
    if (got < 0 && errno == EINTR) continue;
    TORCH_CHECK(got >= 0, command, ": cannot read standard input");
    if (got == 0) break;
    rest.append(text, 0, static_cast<size_t>(got));
    size_t begin = 0;
    for (size_t end = rest.find('\n'); end != std::string::npos; end = rest.find('\n', begin)) {
      take(std::string_view(rest).substr(begin, end + 1 - begin));
      begin = end + 1;
    }
    rest.erase(0, begin);
    if (rest.size() > data::kLongestLine) take(rest);  // throws
  }
  if (!rest.empty()) take(rest);
}

}  // namespace edgewise::app
