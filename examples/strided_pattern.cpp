// A pattern of one's own: the strided edges of Sparse Transformers (Child et al., arXiv 1904.10509). Query i
// uses the `stride` keys around it and every stride-th key of the sequence:
//
//   j is a key of i  when  |i - j| < stride  or  j mod stride = stride - 1
//
// It says nothing of masks: attention takes padding and, in causal layers, the future out of what choose()
// returns (edgewise/edges/edge_source.h). The program shows both, and fails where they do not hold.
#include <edgewise/attention/multihead_attention.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include <cstdlib>
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
  edgewise::MultiheadEdgeAttentionOptions options(/*embed_dim=*/64, /*num_heads=*/4);
  options.source = std::make_shared<StridedEdges>(8);
  options.is_causal = true;
  edgewise::MultiheadEdgeAttention attention(options);

  at::Tensor x = at::randn({2, 256, 64});           // [batch, tokens, width]
  at::Tensor mask = at::ones({2, 256}, at::kBool);  // true = a token
  mask[1].slice(0, 200).fill_(false);               // the second text is shorter
  const auto before = attention->forward(x, mask);

  x.select(1, 255).fill_(1e3);    // the future of everybody else
  x[1].slice(0, 200).fill_(1e3);  // padding
  const auto after = attention->forward(x, mask);

  std::cout << "density per head: " << before.density.mean().item<double>() << "\n";
  const bool unmoved = at::equal(before.output.slice(1, 0, 200), after.output.slice(1, 0, 200));
  std::cout << "neither the future nor padding reaches a token: " << (unmoved ? "true" : "false") << "\n";
  return unmoved && before.density.max().item<double>() < 0.3 ? EXIT_SUCCESS : EXIT_FAILURE;
}
