#include "explore/report_part.h"

#include "explore/page.h"
#include "explore/run_view.h"

namespace edgewise::app {
namespace {

class Collection {
 public:
  Collection(const RunView& run, size_t most_bytes) : run_(run), most_bytes_(most_bytes) {}

  // What is small goes in whatever the limit.
  void add(const std::string& address) { take(address, view_of(run_, address).body); }
  void add_if_it_fits(const std::string& address) {
    std::string body = view_of(run_, address).body;
    if (bytes_ + body.size() <= most_bytes_) take(address, std::move(body));
  }

  void add_input(int64_t step, size_t input) {
    const std::string address = "step/" + std::to_string(step) + "/input/" + std::to_string(input);
    add_if_it_fits(address);
    add_if_it_fits(address + "/thumbnails");
    const auto& layers = run_.file(step)->about().inputs[input].layers;
    for (size_t layer = 0; layer < layers.size(); ++layer)
      for (size_t head = 0; head < layers[layer].heads.size(); ++head)
        add_if_it_fits(address + "/layer/" + std::to_string(layer) + "/head/" + std::to_string(head));
  }

  const std::vector<std::pair<std::string, std::string>>& data() const { return data_; }

 private:
  void take(const std::string& address, std::string body) {
    bytes_ += body.size();
    data_.emplace_back(address, std::move(body));
  }

  const RunView& run_;
  size_t most_bytes_, bytes_ = 0;
  std::vector<std::pair<std::string, std::string>> data_;
};

}  // namespace

std::string graphs_html(const std::filesystem::path& folder, size_t most_bytes) {
  const RunView run(folder);
  const std::vector<int64_t> steps = run.steps();
  if (steps.empty()) return {};
  Collection collection(run, most_bytes);
  collection.add("run");
  for (const int64_t step : steps) collection.add("step/" + std::to_string(step));
  // First what was learned, then how the first input came to it, then the other inputs.
  const size_t inputs = run.file(steps.back())->about().inputs.size();
  if (inputs > 0) collection.add_input(steps.back(), 0);
  for (size_t n = steps.size() - 1; n-- > 0;)
    if (!run.file(steps[n])->about().inputs.empty()) collection.add_input(steps[n], 0);
  for (size_t input = 1; input < inputs; ++input) collection.add_input(steps.back(), input);
  return embedded_page(collection.data());
}

}  // namespace edgewise::app
