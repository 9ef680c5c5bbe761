// A pattern of one's own: the strided edges of Sparse Transformers (Child et al., arXiv 1904.10509). Query i
// uses the `stride` keys around it and every stride-th key of the sequence:
//
//   j is a key of i  when  |i - j| < stride  or  j mod stride = stride - 1
//
// It says nothing of masks: attention takes padding and, in causal layers, the future out of what choose()
// returns (edgewise/edges/edge_source.h). Registered as a kind of attention it has a name and options in
// recipes: this one trains with it.
#include <edgewise/data/repeated_tokens.h>
#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/trainer.h>

#include <ATen/ops/tensor.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

class StridedEdges : public edgewise::EdgeSource {
 public:
  explicit StridedEdges(int64_t stride) : stride_(stride) {}

  edgewise::EdgeChoice choose(const edgewise::EdgeRequest& request) override {
    const edgewise::EdgeShape shape = request.shape();
    std::vector<int64_t> offsets = {0};
    std::vector<int32_t> columns;
    for (int64_t row = 0; row < shape.rows(); ++row) {  // of every item and head
      const int64_t query = request.query_offset + row % shape.queries;
      for (int64_t key = 0; key < shape.keys; ++key)
        if (std::abs(query - key) < stride_ || key % stride_ == stride_ - 1)
          columns.push_back(static_cast<int32_t>(key));
      offsets.push_back(static_cast<int64_t>(columns.size()));
    }
    edgewise::EdgeChoice choice;
    choice.edges =
        edgewise::EdgeSet::from_csr(shape, at::tensor(offsets, at::kLong), at::tensor(columns, at::kInt))
            .to(request.query.device());
    return choice;
  }

 private:
  int64_t stride_;
};

int main() {
  using namespace edgewise::train;
  const auto make = [](const Recipe& recipe, int64_t) {
    return LayerAttention{.edges = [stride = option<int64_t>(recipe, "strided.stride")](int64_t) {
      return std::make_shared<StridedEdges>(stride);
    }};
  };
  register_attention({.name = "strided",
                      .meaning = "neighbours, and every stride-th key",
                      .options = {{.key = "stride", .value = int64_t{8}, .meaning = "tokens", .low = 1}},
                      .make = make});
  const Recipe recipe = parse_recipe(R"(
[data]
length = 32
[attention]
kind = "strided"
[strided]
stride = 4
[train]
steps = 50
)",
                                     "strided_pattern");
  edgewise::data::RepeatedTokensOptions data{.length = 32};
  data.validation_size = data.test_size = 64;
  const auto folder = std::filesystem::temp_directory_path() / "edgewise-strided-pattern";
  std::filesystem::remove_all(folder);
  TrainerOptions options;
  options.run_folder = folder;
  const RunSummary run =
      Trainer(recipe, std::make_shared<edgewise::data::RepeatedTokens>(data), options).run();
  std::filesystem::remove_all(folder);
  const double density = run.test->density.mean().item<double>();
  std::cout << "accuracy " << run.test->accuracy << ", density " << density << "\n";
  return run.steps == 50 && density > 0.25 && density < 0.6 ? EXIT_SUCCESS : EXIT_FAILURE;
}
