// What the page is told of a run: its recipe and densities, and its snapshots part by part.
#pragma once

#include <edgewise/train/snapshot.h>

#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace edgewise::app {

struct HeadPlace {
  int64_t step = 0;
  size_t input = 0, layer = 0, head = 0;
};

// Thread-safe. A damaged file makes the call that reads it throw, and no other.
class RunView {
 public:
  explicit RunView(std::filesystem::path folder);

  std::vector<int64_t> steps() const;
  std::string run() const;                              // JSON: name, recipe, steps, densities over training
  std::string step(int64_t step) const;                 // JSON: inputs, layers and heads with their figures
  std::string input(int64_t step, size_t input) const;  // Packed: tokens, labels, right edges
  std::string thumbnails(int64_t step, size_t input) const;  // Packed: where the edges of every head are
  std::string head(const HeadPlace& place) const;            // Packed: edges, weights, memberships
  // The file of a step, which stays open for later calls.
  std::shared_ptr<const train::SnapshotFile> file(int64_t step) const;

 private:
  std::filesystem::path folder_;
  // The last ones that were asked for, the latest in front. A file that was replaced is opened anew.
  struct Opened {
    int64_t step;
    std::filesystem::file_time_type written;
    std::shared_ptr<const train::SnapshotFile> file;
  };
  mutable std::mutex mutex_;
  mutable std::list<Opened> opened_;
};

// An address below a run: "run", "step/100", "step/100/input/0", ".../thumbnails", ".../layer/1/head/0".
// Empty address: there is no such thing. The one place where addresses are taken apart.
struct ViewReply {
  bool is_known = false;
  std::string type, body;
};
ViewReply view_of(const RunView& run, const std::string& address);

}  // namespace edgewise::app
