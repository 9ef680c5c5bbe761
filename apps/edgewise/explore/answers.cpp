#include "explore/answers.h"

#include <c10/util/Exception.h>

#include <iostream>
#include <mutex>

#include "explore/packed.h"
#include "explore/page.h"

namespace edgewise::app {
namespace {

// Nothing of other sites, nothing of ours in them. The page loads from here alone; pictures it makes are
// blobs.
const std::vector<std::pair<std::string, std::string>>& safe_headers() {
  static const std::vector<std::pair<std::string, std::string>> headers = {
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; connect-src 'self'; "
       "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      {"Cache-Control", "no-store"}};
  return headers;
}

HttpReply refusal(int status, const std::string& reason) {
  return {.status = status, .type = "application/json", .body = dump({{"error", reason}})};
}

// A page of another site that makes a browser ask here (by a name that it has given this machine's address)
// says so in Host or Origin.
std::string why_foreign(int port, const HttpRequest& request) {
  const std::string end = ":" + std::to_string(port);
  const auto is_ours = [&](const std::string& host) {
    return host == "127.0.0.1" + end || host == "localhost" + end;
  };
  if (request.hosts.size() != 1 || !is_ours(request.hosts[0]))
    return "expected the Host 127.0.0.1" + end + "; open the address that edgewise explore printed";
  for (const std::string& origin : request.origins)
    if (!origin.starts_with("http://") || !is_ours(origin.substr(7)))
      return "expected a request from this page, not from another site";
  return {};
}

HttpReply found(const Served& served, const std::string& path) {
  if (const PageFile* file = page_file(path == "/" ? "index.html" : path.substr(path.empty() ? 0 : 1)))
    return {.type = std::string(file->type), .body = std::string(file->content)};
  constexpr std::string_view kApi = "/api/";
  if (path.starts_with(kApi)) {
    ViewReply reply = view_of(served.run, path.substr(kApi.size()), served.beside);
    if (reply.is_known) return {.type = std::move(reply.type), .body = std::move(reply.body)};
  }
  return refusal(404, "there is nothing at this address");
}

void log(const std::string& message) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::cerr << "edgewise: explore: " << message << "\n";
}

}  // namespace

HttpReply answer(const Served& served, int port, const HttpRequest& request) {
  HttpReply reply;
  if (const std::string reason = why_foreign(port, request); !reason.empty()) {
    reply = refusal(403, reason);
  } else if (request.method != "GET") {
    reply = refusal(405, "expected GET; nothing here can be written");
    reply.headers.emplace_back("Allow", "GET");
  } else {
    try {
      reply = found(served, request.path);
    } catch (const c10::IndexError& error) {
      reply = refusal(404, error.what_without_backtrace());
    } catch (const c10::Error& error) {
      reply = refusal(500, error.what_without_backtrace());
      log(error.what_without_backtrace());
    } catch (const std::exception& error) {
      reply = refusal(500, error.what());
      log(error.what());
    }
  }
  const auto& headers = safe_headers();
  reply.headers.insert(reply.headers.end(), headers.begin(), headers.end());
  return reply;
}

}  // namespace edgewise::app
