// What the server answers, request by request: the page, its data, or why not. Only GET, only from this
// machine's browser, only what the page needs; no part of an address becomes a path.
#pragma once

#include "explore/http_server.h"
#include "explore/run_view.h"

namespace edgewise::app {

// What is served: a run, and one to compare it with; null without.
struct Served {
  const RunView& run;
  const RunView* beside = nullptr;
};
// `port`: the one that browsers are to name in the Host header.
HttpReply answer(const Served& served, int port, const HttpRequest& request);

}  // namespace edgewise::app
