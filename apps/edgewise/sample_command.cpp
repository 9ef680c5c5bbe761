// edgewise sample: edges from memberships in a safetensors file, for checks against other programs.
#include <c10/util/Exception.h>
#include <edgewise/io/safetensors.h>
#include <edgewise/ops/sample.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>

#include <chrono>
#include <iostream>

#include "command.h"
#include "table.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct SampleArguments {
  std::string file, out, law = "bernoulli", sampler = "auto";
  double exploration = 0;
  uint64_t seed = 0, step = 0;
  bool self_loops = false;
};

int run(const SampleArguments& arguments) {
  const io::TensorFile file = io::load_safetensors(arguments.file);
  const auto get = [&](const char* name) {
    const auto found = file.tensors.find(name);
    TORCH_CHECK_VALUE(found != file.tensors.end(), "sample: ", arguments.file, " has no tensor '", name,
                      "'; expected query_membership [B, H, L, C] and key_side [B, H, S, C], and optionally "
                      "key_mask [B, S]");
    return found->second;
  };
  const at::Tensor query = get("query_membership"), key = get("key_side");
  SampleOptions options;
  options.law = parse_edge_law(arguments.law);
  options.sampler = parse_sampler(arguments.sampler);
  options.exploration = arguments.exploration;
  options.self_loops = arguments.self_loops;
  options.random.seed = arguments.seed;
  options.random.step = arguments.step;
  if (file.tensors.count("key_mask")) options.key_mask = file.tensors.at("key_mask");
  const auto start = std::chrono::steady_clock::now();
  const EdgeSet edges = sample_sbm_edges(query, key, options);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!arguments.out.empty()) edges.save(arguments.out);

  const at::Tensor expected = (query.to(at::kDouble).sum(2) * key.to(at::kDouble).sum(2)).sum(2).sum(0) /
                              static_cast<double>(std::max<int64_t>(
                                  edges.shape().batch * edges.shape().queries * edges.shape().keys, 1));
  const at::Tensor density = edges.density(options.key_mask), degrees = edges.degrees().to(at::kDouble);
  Table table({"head", "edges", "density", "mean p", "least degree", "mean degree", "largest degree"});
  for (int64_t head = 0; head < edges.shape().heads; ++head) {
    const at::Tensor mine = degrees.select(1, head);
    const bool any = mine.numel() > 0;
    table.add(
        {std::to_string(head), std::to_string(edges.edges_per_head().select(1, head).sum().item<int64_t>()),
         percent(density[head].item<double>()),
         options.key_mask ? "" : percent(expected[head].item<double>()),
         any ? fixed(mine.min().item<double>(), 0) : "", any ? fixed(mine.mean().item<double>(), 1) : "",
         any ? fixed(mine.max().item<double>(), 0) : ""});
  }
  table.print(std::cout);
  std::cerr << to_string(edges.shape()) << ", " << edges.edge_count() << " edges in "
            << fixed(seconds * 1e3, 2) << " ms\n";
  if (!arguments.out.empty()) std::cerr << "written to " << arguments.out << "\n";
  return 0;
}

}  // namespace

void add_sample(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<SampleArguments>();
  CLI::App* command = app.add_subcommand("sample", "Sample SBM edges from memberships in a safetensors file");
  command
      ->add_option("file", arguments->file,
                   "safetensors with query_membership [B, H, L, C] and key_side = K^ S^T [B, H, S, C]")
      ->required();
  command->add_option("--out", arguments->out,
                      "write the edges (row_offsets, col_indices, shape) to this safetensors file");
  command->add_option("--law", arguments->law, "bernoulli or poisson")
      ->capture_default_str()
      ->check(one_of({"bernoulli", "poisson"}));
  command->add_option("--sampler", arguments->sampler, "auto, direct, fastrg, squeezed or thinning")
      ->capture_default_str()
      ->check(one_of({"auto", "direct", "fastrg", "squeezed", "thinning"}));
  command->add_option("--exploration", arguments->exploration, "delta, added to every probability")
      ->capture_default_str()
      ->check(number_of_at_least(0));
  command->add_option("--seed", arguments->seed, "seed")->capture_default_str()->check(whole_number(0));
  command->add_option("--step", arguments->step, "step; another step draws other edges")
      ->capture_default_str()
      ->check(whole_number(0));
  command->add_flag("--self-loops", arguments->self_loops, "add (i, i)");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
