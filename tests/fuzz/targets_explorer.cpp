// What the explorer answers: addresses and headers over a sound run, and damaged snapshots behind good
// addresses.
#include <fstream>
#include <iostream>
#include <sstream>

#include "explore/answers.h"
#include "explore/page_bytes.h"
#include "fuzz_target.h"
#include "seeds.h"

namespace edgewise::app {

// The page itself is no reader.
namespace {
constexpr unsigned char kPage[] = "<html></html>";
constexpr EmbeddedFile kFiles[] = {{"index.html", kPage, sizeof kPage - 1}};
}  // namespace
const std::span<const EmbeddedFile> kPageBytes = kFiles;

}  // namespace edgewise::app

namespace edgewise::fuzz {
namespace {

constexpr int kPort = 8000;
constexpr const char* kHost = "127.0.0.1:8000";

void make_run(const std::string& folder) {
  std::filesystem::create_directories(scratch() / folder / "snapshots");
  write_scratch(folder + "/config.toml",
                "[data]\nname = \"repeated_tokens\"\n[model]\nlayers = 1\nheads = 1\n");
  write_scratch(folder + "/metrics.jsonl", "{\"kind\": \"train\", \"step\": 1, \"density\": [0.5]}\n");
  train::save_snapshot(scratch() / folder / "snapshots/step-00000003.safetensors", small_snapshot());
}

// METHOD, address, hosts and origins: a line each, a host begins with H, an origin with O.
void run_requests(std::string_view input) {
  static const app::RunView* const run = [] {
    make_run("explored");
    return new app::RunView(scratch() / "explored");
  }();
  std::istringstream lines{std::string(input)};
  app::HttpRequest request;
  std::getline(lines, request.method);
  std::getline(lines, request.path);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('H')) request.hosts.push_back(line.substr(1));
    if (line.starts_with('O')) request.origins.push_back(line.substr(1));
  }
  const app::HttpReply reply = app::answer({.run = *run, .beside = nullptr}, kPort, request);
  must(reply.status == 200 || reply.status == 403 || reply.status == 404 || reply.status == 405,
       "an answer of 200, 403, 404 or 405 from a sound run");
  must(reply.status == 403 ||
           (request.hosts.size() == 1 && (request.hosts[0] == kHost || request.hosts[0] == "localhost:8000")),
       "other hosts to be refused");
}

std::vector<std::string> request_seeds() {
  std::vector<std::string> seeds;
  for (const char* path :
       {"/", "/index.html", "/api/run", "/api/step/3", "/api/step/3/input/0",
        "/api/step/3/input/0/thumbnails", "/api/step/3/input/0/layer/0/head/0", "/api/../config.toml"})
    seeds.push_back(std::string("GET\n") + path + "\nH" + kHost + "\nOhttp://" + kHost + "\n");
  return seeds;
}

void run_damaged(std::string_view input) {
  static const bool made = (make_run("damaged"), true);
  must(made, "a run");
  const auto parts = parts_of(input, 2);
  write_scratch("damaged/snapshots/step-00000003.safetensors", parts[0]);
  write_scratch("damaged/metrics.jsonl", parts[1]);
  const app::RunView run(scratch() / "damaged");
  for (const char* path : {"/api/run", "/api/step/3", "/api/step/3/input/0", "/api/step/3/input/0/thumbnails",
                           "/api/step/3/input/0/layer/0/head/0"}) {
    const app::HttpReply reply =
        app::answer({.run = run, .beside = nullptr}, kPort,
                    {.method = "GET", .path = path, .hosts = {kHost}, .origins = {}});
    must(reply.status == 200 || reply.status == 404 || reply.status == 500, "an answer");
    must(reply.body.find("std::") == std::string::npos, "an error with a sentence");
  }
}

}  // namespace

std::vector<Target> explorer_targets() {
  return {
      {"requests", "addresses and headers that the explorer is asked for", request_seeds, run_requests},
      {"explored", "damaged snapshots and metrics behind the explorer",
       [] {
         make_run("made");
         return std::vector<std::string>{join_parts(
             {read_scratch("made/snapshots/step-00000003.safetensors"), read_scratch("made/metrics.jsonl")})};
       },
       run_damaged}};
}

}  // namespace edgewise::fuzz
