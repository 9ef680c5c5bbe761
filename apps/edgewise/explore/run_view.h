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

#include "explore/packed.h"

namespace edgewise::app {

struct HeadPlace {
  int64_t step = 0;
  size_t input = 0, layer = 0, head = 0;
};

// Thread-safe. A damaged file makes the call that reads it throw, and no other.
class RunView {
 public:
  explicit RunView(std::filesystem::path folder);
  // A snapshot alone in place of those of the run; no folder: of no run, as Python writes them.
  RunView(std::filesystem::path folder, const std::filesystem::path& file);

  std::vector<int64_t> steps() const;
  // JSON: name, recipe, steps, densities over training, and the name of the run that stands beside it.
  std::string run(const RunView* beside = nullptr) const;
  const std::string& name() const { return name_; }
  std::string step(int64_t step) const;                 // JSON: inputs, layers and heads with their figures
  std::string input(int64_t step, size_t input) const;  // Packed: tokens, labels, right edges
  std::string thumbnails(int64_t step, size_t input) const;  // Packed: where the edges of every head are
  std::string head(const HeadPlace& place) const;            // Packed: edges, weights, memberships
  // The file of a step, which stays open for later calls.
  std::shared_ptr<const train::SnapshotFile> file(int64_t step) const;

 private:
  std::string name_of_folder() const;
  Json about() const;       // what run() says, of a run
  Json about_file() const;  // of a snapshot without a run

  std::filesystem::path folder_;
  std::shared_ptr<const train::SnapshotFile> only_;  // in place of the folder's
  std::string name_;
  // The last ones that were asked for, the latest in front. A file that was replaced is opened anew.
  struct Opened {
    int64_t step;
    std::filesystem::file_time_type written;
    std::shared_ptr<const train::SnapshotFile> file;
  };
  mutable std::mutex mutex_;
  mutable std::list<Opened> opened_;
};

// An address below a run: "run", "step/100", "step/100/input/0", ".../thumbnails", ".../layer/1/head/0"; and
// of the run beside it "beside/run" and so on. Where is_known is false there is no such thing. The one place
// where addresses are taken apart.
struct ViewReply {
  bool is_known = false;
  std::string type, body;
};
ViewReply view_of(const RunView& run, const std::string& address, const RunView* beside = nullptr);

}  // namespace edgewise::app
