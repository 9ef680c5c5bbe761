// A learner of one's own: every query keeps the k keys that a small indexer scores highest.
//
//   s_ij = a(x_i) . b(x_j) / sqrt(P);  edges of i: the k largest s_ij;  dL/ds_ij = dL/d(logit of edge ij)
//
// Its numbers per edge are the scores: attention's backward pass sends them the gradient of the edge's own
// logit (straight-through), and autograd takes it from there. The task below has one right key per query,
// which only its content tells: the program fails unless training finds far more of them than k chosen at
// random would.
#include <edgewise/attention/multihead_attention.h>

#include <torch/optim/adam.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>

class TopKEdges : public edgewise::EdgeSource {
 public:
  TopKEdges(int64_t embed_dim, int64_t width, int64_t k)
      : k_(k), scale_(1 / std::sqrt(static_cast<double>(width))) {
    a_ = register_module("a", torch::nn::Linear(embed_dim, width));
    b_ = register_module("b", torch::nn::Linear(embed_dim, width));
  }

  edgewise::EdgeChoice choose(const edgewise::EdgeRequest& request) override {
    const edgewise::EdgeShape shape = request.shape();
    const at::Tensor x = request.tokens.detach(),  // the indexer learns by its scores alone
        scores = (a_(x).matmul(b_(x).transpose(1, 2)) * scale_).unsqueeze(1);  // [B, 1, L, S]
    // Attention would take forbidden keys out; but each of them would have cost a place among the k.
    const at::Tensor allowed = request.allowed();
    const at::Tensor best = std::get<1>(
        scores.masked_fill(allowed.logical_not(), -std::numeric_limits<float>::infinity()).topk(k_));
    const at::Tensor chosen = (at::zeros_like(allowed).scatter(-1, best, true) & allowed)
                                  .expand({shape.batch, shape.heads, shape.queries, shape.keys});
    edgewise::EdgeChoice choice;
    choice.edges = edgewise::EdgeSet::from_mask(chosen);
    if (!is_training()) return choice;
    choice.learner.emplace().values = scores.expand_as(chosen).masked_select(chosen);
    return choice;
  }

 private:
  int64_t k_;
  double scale_;
  torch::nn::Linear a_{nullptr}, b_{nullptr};
};

int main() {
  constexpr int64_t kBatch = 16, kTokens = 32, kMarks = 8, kWidth = 2 * kMarks + 1, kK = 4;
  torch::manual_seed(1);
  edgewise::MultiheadEdgeAttentionOptions options(kWidth, /*num_heads=*/1);
  options.source = std::make_shared<TopKEdges>(kWidth, kMarks, kK);
  edgewise::MultiheadEdgeAttention attention(options);
  torch::optim::Adam adam(attention->parameters(), 3e-3);
  double found = 0;
  for (int64_t step = 0; step <= 300; ++step) {
    // A token has a mark, asks for the mark of some token, and has a value. The answer is that token's value.
    const at::Tensor mark = at::rand({kBatch, kTokens, kMarks}).round() * 2 - 1,
                     value = at::randn({kBatch, kTokens, 1}),
                     right = at::randint(kTokens, {kBatch, kTokens, 1}, at::kLong),
                     asked = mark.gather(1, right.expand({kBatch, kTokens, kMarks}));
    const auto output = attention->forward(at::cat({mark, asked, value}, 2), {}, {}, /*keep_edges=*/true);
    const at::Tensor answer = output.output.slice(2, 2 * kMarks);
    const at::Tensor loss = (answer - value.gather(1, right)).square().mean();
    adam.zero_grad();
    loss.backward();
    adam.step();
    found = output.edges->to_mask().select(1, 0).gather(2, right).to(at::kDouble).mean().item<double>();
    if (step % 100 == 0)
      std::cout << "step " << step << ": loss " << loss.item<float>() << ", right keys found " << found
                << "\n";
  }
  std::cout << "by chance: " << static_cast<double>(kK) / kTokens << "\n";
  return found > 0.7 ? EXIT_SUCCESS : EXIT_FAILURE;
}
