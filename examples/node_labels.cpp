// A task of one's own: graphs whose every node points to another and carries a number; the label of a node is
// the sign of the number that it points to. Nodes have features and no token, and the graph's edges are the
// relations of the batch, from which a source of one's own takes the edges of attention.
//
// Registered, both have a name in recipes: the task with an option of its own, [graphs] nodes.
#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/task_kinds.h>
#include <edgewise/train/trainer.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <filesystem>
#include <iostream>

using namespace edgewise;

class Graphs : public data::Dataset {
 public:
  explicit Graphs(int64_t nodes) : nodes_(nodes) {}
  std::string name() const override { return "graphs"; }
  int64_t size(data::Split split) const override { return split == data::Split::kTrain ? 100'000 : 256; }
  int64_t vocabulary() const override { return 0; }
  int64_t features() const override { return 1; }
  int64_t classes() const override { return 2; }
  int64_t max_length() const override { return nodes_; }
  // An example depends on its split and index alone.
  Batch batch(data::Split split, std::span<const int64_t> indices) const override {
    std::vector<at::Tensor> numbers, relations, labels;
    for (const int64_t index : indices) {
      at::Generator generator =
          at::detail::createCPUGenerator(static_cast<uint64_t>(3 * index) + static_cast<uint64_t>(split));
      const at::Tensor node = at::arange(nodes_), to = at::randperm(nodes_, generator, at::kLong);
      numbers.push_back(at::randn({nodes_, 1}, generator));
      relations.push_back(at::stack({node, to, at::ones_like(to)}, 1));  // [N, 3]: query, key, id
      labels.push_back((numbers.back().squeeze(1).index_select(0, to) > 0).to(at::kLong));
    }
    return {.towers = {{.features = at::stack(numbers), .relations = at::stack(relations)}},
            .labels = at::stack(labels)};
  }

 private:
  int64_t nodes_;
};

class GraphEdges : public EdgeSource {  // those of the batch, for every head
  EdgeChoice choose(const EdgeRequest& request) override {
    EdgeChoice choice;
    choice.edges = EdgeSet::from_mask(
        request.relations->edges.to_mask().expand({-1, request.shape().heads, -1, -1}).contiguous());
    return choice;
  }
};

int main() {
  using namespace edgewise::train;
  register_task(
      {.name = "graphs",
       .meaning = "the sign that a node points to",
       .open = [](const Recipe& r) { return std::make_shared<Graphs>(option<int64_t>(r, "graphs.nodes")); },
       .task = [](DatasetPtr data) { return std::make_shared<tasks::TokenLabels>(data); },
       .options = {{.key = "nodes", .value = int64_t{8}, .meaning = "of a graph", .low = 1}}});
  register_attention(
      {.name = "graph_edges", .meaning = "the edges of the input", .make = [](const Recipe&, int64_t) {
         return LayerAttention{.edges = [](int64_t) { return std::make_shared<GraphEdges>(); }};
       }});
  const char* const text =
      "data.name = 'graphs'\ngraphs.nodes = 16\nattention.kind = 'graph_edges'\nmodel.layers = 1\n"
      "model.dim = 16\nmodel.hidden = 32\nmodel.positions = 'none'\ntrain.steps = 150\n"
      "train.learning_rate = 0.01";
  const Recipe recipe = parse_recipe(text, "node_labels");
  const auto folder = std::filesystem::temp_directory_path() / "edgewise-node-labels";
  std::filesystem::remove_all(folder);
  TrainerOptions options;
  options.run_folder = folder;
  const RunSummary run = Trainer(recipe, open_task(recipe), options).run();
  std::filesystem::remove_all(folder);
  std::cout << "accuracy " << run.test->accuracy << "\n";
  return run.test->accuracy > 0.95 ? 0 : 1;
}
