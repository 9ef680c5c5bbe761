// Twenty lines against the installed library: sample edges, attend over them, learn.
#include <edgewise/ops/functional.h>
#include <edgewise/ops/sample.h>

#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>

#include <iostream>

int main() {
  const at::Tensor membership = at::rand({1, 2, 16, 4}).requires_grad_(),
                   key_side = at::rand({1, 2, 16, 4}).div(4).requires_grad_();
  const edgewise::EdgeSet edges = edgewise::sample_sbm_edges(membership, key_side);
  edgewise::EdgeLearner learner;
  learner.query_membership = membership;
  learner.key_side = key_side;
  const at::Tensor x = at::randn({1, 2, 16, 8});
  edgewise::functional::edge_attention(x, x, x, edges, learner).output.square().sum().backward();
  std::cout << edges.edge_count() << " edges, gradient " << membership.grad().abs().sum().item<float>()
            << "\n";
  return membership.grad().defined() ? 0 : 1;
}
