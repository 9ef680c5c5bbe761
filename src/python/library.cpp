// torch.ops.edgewise.*: the operations over plans and sources, on which python/edgewise is built. What
// tracing and autograd need to know of them is said there, in edgewise/_ops.py.
#include <torch/library.h>

#include "python/plan_attention.h"
#include "python/plans.h"
#include "python/random_edges.h"
#include "python/source_attention.h"

namespace edgewise::python {
namespace {

const std::vector<at::Tag> kPlain = {at::Tag::pt2_compliant_tag};
const std::vector<at::Tag> kCounted = {at::Tag::pt2_compliant_tag, at::Tag::dynamic_output_shape};

}  // namespace

TORCH_LIBRARY_FRAGMENT(edgewise, library) {
  library.def("edge_plan(Tensor row_offsets, Tensor col_indices, SymInt[] shape) -> Tensor[]", kPlain);
  library.def("edge_plan_from_mask(Tensor mask) -> Tensor[]", kCounted);
  library.def("square_plan(Tensor mask, SymInt[] shape) -> Tensor[]", kCounted);
  library.def("plan_of_layout(Tensor[] layout, SymInt[] shape) -> Tensor[]", kPlain);
  library.def("plan_to(Tensor[] plan, SymInt[] shape, Device device) -> Tensor[]", kPlain);
  library.def("save_plan(str path, Tensor[] plan, SymInt[] shape) -> ()");
  library.def("load_plan(str path) -> (Tensor[], int[])", &load_plan);
  library.def("plan_as_edges(Tensor[] plan, SymInt[] shape) -> Tensor[]", kCounted);
  library.def("plan_mask(Tensor[] plan, SymInt[] shape) -> Tensor", kPlain);
  library.def(
      "random_edges(Tensor query, Tensor key, Tensor? key_mask, Tensor seed, int alpha, int unit, bool "
      "is_causal) -> Tensor[]",
      kCounted);
  library.def("plan_union(Tensor[] a, Tensor[] b, SymInt[] shape) -> Tensor[]", kCounted);
  library.def("plan_difference(Tensor[] a, Tensor[] b, SymInt[] shape) -> Tensor[]", kCounted);
  library.def("plan_counts(Tensor[] plan, SymInt[] shape) -> Tensor", kPlain);
  library.def(
      "attend_plan(Tensor query, Tensor key, Tensor value, Tensor[] plan, int[] shape, Tensor? key_mask, "
      "Tensor? seed, bool is_causal, float? scale, float dropout_p) -> Tensor");
  library.def(
      "attend_sbm(Tensor query, Tensor key, Tensor value, Tensor[] parameters, Tensor? key_mask, Tensor "
      "seed, "
      "str options, bool training, bool is_causal, float? scale, float dropout_p, ScalarType? autocast) -> "
      "(Tensor output, Tensor penalty, Tensor density)");
  library.def(
      "attend_drawn(Tensor query, Tensor key, Tensor value, Tensor probabilities, Tensor? key_mask, Tensor "
      "seed, str options, bool training, bool is_causal, float? scale, float dropout_p) -> (Tensor output, "
      "Tensor density)");
  library.def(
      "plan_attention(Tensor query, Tensor key, Tensor value, Tensor[] plan, SymInt[] shape, Tensor? "
      "key_mask, Tensor? seed, bool is_causal, float? scale, float dropout_p, bool keep) -> (Tensor output, "
      "Tensor tape)",
      kPlain);
  library.def(
      "plan_attention_backward(Tensor grad_output, Tensor tape, Tensor query, Tensor key, Tensor value, "
      "Tensor[] plan, SymInt[] shape, Tensor? key_mask, Tensor? seed, bool is_causal, float? scale, float "
      "dropout_p) -> (Tensor, Tensor, Tensor)",
      kPlain);
  library.def(
      "sbm_attention(Tensor query, Tensor key, Tensor value, Tensor[] parameters, Tensor? key_mask, Tensor "
      "seed, str options, bool training, bool is_causal, float? scale, float dropout_p, ScalarType? "
      "autocast, bool keep) -> (Tensor output, Tensor penalty, Tensor density, Tensor tape)",
      kPlain);
  library.def(
      "sbm_attention_backward(Tensor? grad_output, Tensor? grad_penalty, Tensor tape, Tensor query, Tensor "
      "key, Tensor value, Tensor[] parameters, Tensor? key_mask, Tensor seed, str options, bool training, "
      "bool is_causal, float? scale, float dropout_p, ScalarType? autocast) -> (Tensor, Tensor, Tensor, "
      "Tensor[])",
      kPlain);
  library.def(
      "sbm_edges(Tensor query, Tensor key, Tensor[] parameters, Tensor? key_mask, Tensor seed, str options, "
      "bool training, bool is_causal, ScalarType? autocast) -> Tensor[]",
      kCounted);
  library.def(
      "drawn_attention(Tensor query, Tensor key, Tensor value, Tensor probabilities, Tensor? key_mask, "
      "Tensor seed, str options, bool training, bool is_causal, float? scale, float dropout_p, bool keep) -> "
      "(Tensor output, Tensor density, Tensor tape)",
      kPlain);
  library.def(
      "drawn_attention_backward(Tensor grad_output, Tensor tape, Tensor query, Tensor key, Tensor value, "
      "Tensor probabilities, Tensor? key_mask, Tensor seed, str options, bool training, bool is_causal, "
      "float? scale, float dropout_p) -> (Tensor, Tensor, Tensor, Tensor)",
      kPlain);
  library.def(
      "drawn_edges(Tensor query, Tensor key, Tensor probabilities, Tensor? key_mask, Tensor seed, str "
      "options, bool training, bool is_causal) -> Tensor[]",
      kCounted);
}

// Autograd records these as they run: where nothing traces or transforms the call.
TORCH_LIBRARY_IMPL(edgewise, CompositeImplicitAutograd, library) {
  library.impl("attend_plan", &attend_plan);
  library.impl("attend_sbm", &attend_sbm);
  library.impl("attend_drawn", &attend_drawn);
}

TORCH_LIBRARY_IMPL(edgewise, CompositeExplicitAutograd, library) {
  library.impl("edge_plan", &edge_plan);
  library.impl("edge_plan_from_mask", &edge_plan_from_mask);
  library.impl("square_plan", &square_plan);
  library.impl("plan_of_layout", &plan_of_layout);
  library.impl("plan_to", &plan_to);
  library.impl("save_plan", &save_plan);
  library.impl("plan_as_edges", &plan_as_edges);
  library.impl("plan_mask", &plan_mask);
  library.impl("random_edges", &random_edges);
  library.impl("plan_union", &plan_union);
  library.impl("plan_difference", &plan_difference);
  library.impl("plan_counts", &plan_counts);
  library.impl("plan_attention", &plan_attention);
  library.impl("plan_attention_backward", &plan_attention_backward);
  library.impl("sbm_attention", &sbm_attention);
  library.impl("sbm_attention_backward", &sbm_attention_backward);
  library.impl("sbm_edges", &sbm_edges);
  library.impl("drawn_attention", &drawn_attention);
  library.impl("drawn_attention_backward", &drawn_attention_backward);
  library.impl("drawn_edges", &drawn_edges);
}

}  // namespace edgewise::python
