// The server over cpp-httplib, as a library of its own. It decides nothing but how long it waits: every
// request, of whatever method, goes to HttpServerOptions::answer.
#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include "explore/http_server.h"

namespace edgewise::app {
namespace {

constexpr int kThreads = 16, kPatienceSeconds = 5;
constexpr int kIdleSeconds = 1;        // browsers open connections that they may need; the end waits for them
constexpr size_t kLargestBody = 1024;  // of a request; none of ours has any

std::vector<std::string> values_of(const httplib::Request& request, const char* name) {
  std::vector<std::string> values;
  for (size_t n = 0; n < request.get_header_value_count(name); ++n)
    values.push_back(request.get_header_value(name, n));
  return values;
}

std::string serve(const HttpServerOptions& options) {
  httplib::Server server;
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  // The default would share the port with whoever asks for it too.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  server.set_keep_alive_max_count(1);  // a connection that waits would keep a thread
  server.set_keep_alive_timeout(kIdleSeconds);
  server.set_read_timeout(kPatienceSeconds);
  server.set_write_timeout(kPatienceSeconds);
  server.set_payload_max_length(kLargestBody);
  server.set_pre_routing_handler([&](const httplib::Request& request, httplib::Response& response) {
    HttpReply reply = options.answer({.method = request.method,
                                      .path = request.path,
                                      .hosts = values_of(request, "Host"),
                                      .origins = values_of(request, "Origin")});
    response.status = reply.status;
    for (const auto& [name, value] : reply.headers) response.set_header(name, value);
    // Moved into a provider: set_content would copy the body of a large head.
    auto body = std::make_shared<const std::string>(std::move(reply.body));
    response.set_content_provider(body->size(), reply.type,
                                  [body](size_t offset, size_t length, httplib::DataSink& sink) {
                                    return sink.write(body->data() + offset, length);
                                  });
    return httplib::Server::HandlerResponse::Handled;
  });
  int port = options.port;
  if (port == 0)
    port = server.bind_to_any_port("127.0.0.1");
  else if (!server.bind_to_port("127.0.0.1", port))
    port = -1;
  if (port < 0)
    return "expected port " + std::to_string(options.port) +
           " of 127.0.0.1 to be free; it is not. Choose another with --port, or leave it out";
  options.ready(port);
  std::atomic<bool> is_done = false;
  std::thread listener([&] {
    server.listen_after_bind();
    is_done = true;
  });
  // stop() of a server that does not listen yet would be forgotten.
  while (!is_done && !server.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  while (!is_done && !options.stop()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const bool ended_by_itself = is_done;
  server.stop();
  listener.join();
  return ended_by_itself ? "the server ended by itself" : "";
}

}  // namespace
}  // namespace edgewise::app

extern "C" __attribute__((visibility("default"))) std::string edgewise_serve_http(
    const edgewise::app::HttpServerOptions& options) {
  try {
    return edgewise::app::serve(options);
  } catch (const std::exception& error) {
    return error.what();
  }
}
