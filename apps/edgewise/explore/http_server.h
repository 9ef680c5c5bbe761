// An HTTP server on 127.0.0.1 that answers with a function. The library behind it (libedgewise_http.so, over
// Debian's libcpp-httplib) is loaded when it is first needed, so that a program built with it also starts
// where it is missing; no_http_server.cpp stands in where it was missing at configure time.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace edgewise::app {

struct HttpRequest {
  std::string method, path;          // "GET", "/api/run"
  std::vector<std::string> hosts;    // values of the Host header, of which there should be one
  std::vector<std::string> origins;  // of Origin, sent by pages of other sites
};

struct HttpReply {
  int status = 200;
  std::string type, body;
  std::vector<std::pair<std::string, std::string>> headers = {};
};

struct HttpServerOptions {
  int port = 0;                                         // 0 = a free one
  std::function<HttpReply(const HttpRequest&)> answer;  // called from several threads; does not throw
  std::function<void(int port)> ready;                  // before the first request
  std::function<bool()> stop;                           // asked ten times a second
};

// Serves until stop() says so. Throws when the port cannot be had.
void serve_http(const HttpServerOptions& options);

}  // namespace edgewise::app
