// Snapshots: what they hold is what the model computes, the file gives it back, damage is found, and training
// does not notice them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <edgewise/edges/sbm_edges.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/io/safetensors.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/evaluate.h>
#include <edgewise/train/snapshot.h>
#include <edgewise/train/task_kinds.h>

#include "kit/message_of.h"
#include "kit/scratch_folder.h"
#include "train/snapshot/snapshot_recipe.h"
#include "train/tiny_run.h"

namespace edgewise::train {
namespace {

using kit::message_of;
using kit::ScratchFolder;
using ::testing::HasSubstr;
using tiny_run::run;
using tiny_run::tiny_data;
using tiny_run::tiny_recipe;

// Attention of one head over one item as a matrix, by plain operations on masked dense scores.
at::Tensor dense_weights(const AttentionView& view, int64_t head, const at::Tensor& mask) {
  const at::Tensor q = view.query[0][head].to(at::kDouble), k = view.key[0][head].to(at::kDouble);
  const at::Tensor scores = at::matmul(q, k.t()) / std::sqrt(static_cast<double>(q.size(1)));
  return scores.masked_fill(mask.logical_not(), -1e300).softmax(-1).masked_fill(mask.logical_not(), 0);
}

// Rows of lists as a matrix; 1 where there are no weights.
at::Tensor as_matrix(const HeadSnapshot& head, int64_t keys) {
  const int64_t rows = head.offsets.size(0) - 1;
  at::Tensor matrix = at::zeros({rows, keys}, at::kDouble);
  for (int64_t row = 0; row < rows; ++row)
    for (int e = head.offsets[row].item<int>(); e < head.offsets[row + 1].item<int>(); ++e)
      matrix[row][head.keys[e].item<int>()] = head.weights.defined() ? head.weights[e].item<double>() : 1.0;
  return matrix;
}

struct Taken {
  explicit Taken(const Recipe& given, SnapshotLimits limits = {}) : recipe(given) {
    torch::manual_seed(1);
    const auto data = tiny_data(recipe);
    model = build_model(recipe, *data);
    request = {.step = 7, .examples = {0, 2}, .seed = 3, .limits = limits};
    snapshot = take_snapshot(*model, *data, request);
    model->eval();
    const torch::NoGradGuard no_grad;
    for (const int64_t example : request.examples)
      outputs.push_back(model->forward({.batch = data->batch(data::Split::kValidation, std::array{example}),
                                        .random = evaluation_stream(3, 0, example),
                                        .keep_edges = true}));
  }
  Recipe recipe;
  ModelPtr model;
  SnapshotRequest request;
  Snapshot snapshot;
  std::vector<ModelOutput> outputs;
};

class SnapshotKinds : public testing::TestWithParam<const char*> {};

TEST_P(SnapshotKinds, HaveTheEdgesAndWeightsOfTheModel) {
  const std::string kind = GetParam();
  const bool squares = kind.ends_with("/16");
  Recipe recipe = tiny_recipe({"attention.kind=" + kind.substr(0, kind.find('/')), "data.length=40",
                               squares ? "attention.unit=16" : "attention.unit=1"});
  const Taken taken(recipe);
  ASSERT_EQ(taken.snapshot.inputs.size(), 2);
  for (size_t i = 0; i < 2; ++i) {
    const InputSnapshot& input = taken.snapshot.inputs[i];
    ASSERT_EQ(input.layers.size(), 2);
    for (size_t l = 0; l < 2; ++l) {
      const AttentionView& view = taken.outputs[i].views[l];
      const at::Tensor mask = view.edges ? view.edges->to_mask()[0] : at::ones({2, 40, 40}, at::kBool);
      EXPECT_EQ(input.layers[l].unit, squares ? 16 : 1);
      for (int64_t h = 0; h < 2; ++h) {
        const HeadSnapshot& head = input.layers[l].heads[static_cast<size_t>(h)];
        at::Tensor expected = dense_weights(view, h, mask[h]);
        EXPECT_EQ(head.edges, mask[h].sum().item<int64_t>());
        EXPECT_NEAR(head.density, static_cast<double>(head.edges) / 1600, 1e-12);
        if (squares) {  // sums over 16 x 16 pairs, over the queries of the group
          expected = at::constant_pad_nd(expected, {0, 8, 0, 8}).view({3, 16, 3, 16}).sum(3).sum(1);
          const at::Tensor attending =
              at::constant_pad_nd(mask[h].any(1), {0, 8}).view({3, 16}).sum(1).clamp_min(1);
          expected = expected / attending.unsqueeze(1);
        } else {
          EXPECT_EQ(head.chosen, head.edges);
        }
        EXPECT_EQ(head.keys.size(0), head.chosen);
        EXPECT_TRUE(at::allclose(as_matrix(head, expected.size(1)), expected, 2e-3, 1e-5)) << l << " " << h;
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Kinds, SnapshotKinds,
                         testing::Values("sbm", "window", "random", "full", "dense", "window+sbm", "sac",
                                         "sbm/16", "window/16", "window+sbm/16"));

TEST(Snapshot, MembershipsAndBlockMatrixGiveTheProbabilities) {
  const Taken taken(tiny_recipe());
  const HeadSnapshot& head = taken.snapshot.inputs[1].layers[1].heads[1];
  const auto modules = taken.model->modules();
  const SbmEdgesImpl* sbm = nullptr;  // of the last layer
  for (const auto& module : modules)
    if (const auto* found = dynamic_cast<const SbmEdgesImpl*>(module.get())) sbm = found;
  ASSERT_NE(sbm, nullptr);
  const AttentionView& view = taken.outputs[1].views[1];
  const at::Tensor q = sbm->membership(view.query)[0][1], k = sbm->membership(view.key)[0][1];
  EXPECT_TRUE(at::allclose(head.query_membership.to(at::kFloat), q, 1e-2, 1e-3));
  EXPECT_TRUE(at::allclose(head.block_matrix, sbm->block_matrix()[1]));
  EXPECT_TRUE(at::allclose(head.key_side.to(at::kFloat), at::matmul(k, head.block_matrix.t()), 1e-2, 1e-4));
}

TEST(Snapshot, LongRowsKeepTheirHeaviestEdges) {
  const Recipe recipe = tiny_recipe({"attention.kind=full", "data.length=40"});
  const Taken whole(recipe), cut(recipe, {.head_edges = 200});
  const HeadSnapshot &all = whole.snapshot.inputs[0].layers[0].heads[0],
                     &some = cut.snapshot.inputs[0].layers[0].heads[0];
  EXPECT_EQ(some.edges, 1600);
  EXPECT_EQ(some.chosen, 1600);
  EXPECT_EQ(some.keys.size(0), 200);  // five of each query
  const at::Tensor full = as_matrix(all, 40), kept = as_matrix(some, 40);
  EXPECT_TRUE(at::equal(std::get<0>(full.topk(5, 1)), std::get<0>(kept.topk(5, 1))));
  // All heads of all inputs share a budget: two inputs, two layers, two heads.
  const Taken shared(recipe, {.all_edges = 8 * 80});
  EXPECT_EQ(shared.snapshot.inputs[0].layers[0].heads[0].keys.size(0), 80);
  const Taken sampled(tiny_recipe({"data.length=40"}), {.membership_rows = 16});
  EXPECT_EQ(sampled.snapshot.inputs[0].layers[0].membership_stride, 3);
  EXPECT_EQ(sampled.snapshot.inputs[0].layers[0].heads[0].query_membership.size(0), 14);
}

void expect_equal(const at::Tensor& a, const at::Tensor& b, const char* what) {
  ASSERT_EQ(a.defined(), b.defined()) << what;
  if (!a.defined()) return;
  EXPECT_TRUE(at::equal(a, b)) << what;
}

TEST(Snapshot, TheFileGivesBackWhatWasWritten) {
  const ScratchFolder scratch;
  const Taken taken(tiny_recipe());
  save_snapshot(scratch / "s", taken.snapshot);
  const SnapshotFile file(scratch / "s");
  EXPECT_EQ(file.about().step, 7);
  EXPECT_EQ(file.about().task, "repeated_tokens");
  ASSERT_EQ(file.about().inputs.size(), 2);
  for (size_t i = 0; i < 2; ++i) {
    const InputSnapshot &wrote = taken.snapshot.inputs[i], read = file.input(i);
    EXPECT_EQ(read.example, wrote.example);
    expect_equal(read.tokens, wrote.tokens, "tokens");
    expect_equal(read.labels, wrote.labels, "labels");
    expect_equal(read.predicted, wrote.predicted, "predicted");
    expect_equal(read.right.keys, wrote.right.keys, "right edges");
    for (size_t l = 0; l < 2; ++l)
      for (size_t h = 0; h < 2; ++h) {
        const HeadSnapshot &a = wrote.layers[l].heads[h], b = file.head(i, l, h);
        EXPECT_EQ(a.edges, b.edges);
        EXPECT_EQ(a.chosen, b.chosen);
        EXPECT_EQ(a.density, b.density);
        expect_equal(a.offsets, b.offsets, "offsets");
        expect_equal(a.keys, b.keys, "keys");
        expect_equal(a.weights, b.weights, "weights");
        expect_equal(a.query_membership, b.query_membership, "query_membership");
        expect_equal(a.key_side, b.key_side, "key_side");
        expect_equal(a.block_matrix, b.block_matrix, "block_matrix");
      }
  }
  EXPECT_THAT(message_of([&] { file.head(0, 2, 0); }), HasSubstr("no head 0 of layer 2"));
}

// Reads everything; the message of the refusal, or "".
std::string refusal_of(const std::filesystem::path& path) {
  try {
    const SnapshotFile file(path);
    for (size_t i = 0; i < file.about().inputs.size(); ++i) {
      file.input(i);
      for (size_t l = 0; l < file.about().inputs[i].layers.size(); ++l)
        for (size_t h = 0; h < file.about().inputs[i].layers[l].heads.size(); ++h) file.head(i, l, h);
    }
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return {};
}

TEST(Snapshot, DamagedFilesAreRefused) {
  const ScratchFolder scratch;
  save_snapshot(scratch / "s", Taken(tiny_recipe({"model.layers=1"})).snapshot);
  const std::string whole = scratch.read("s");
  ASSERT_EQ(refusal_of(scratch / "s"), "");
  for (size_t length = 0; length < whole.size(); length += 97) {
    scratch.write("cut", whole.substr(0, length));
    EXPECT_NE(refusal_of(scratch / "cut"), "") << "cut to " << length;
  }
  // A bit of any tensor: the checksum tells. A bit of the description: an error, or another description.
  const size_t data = io::read_safetensors_header(scratch / "s").data_offset;
  for (size_t at = data; at < whole.size(); at += 61) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    scratch.write("bit", damaged);
    EXPECT_THAT(refusal_of(scratch / "bit"), HasSubstr("damaged")) << at;
  }
  for (size_t at = 8; at < data; at += 7) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    scratch.write("bit", damaged);
    refusal_of(scratch / "bit");  // throws nothing but c10::Error
  }
}

// Right checksums over wrong contents: what a hostile file has.
TEST(Snapshot, HostileFilesAreRefused) {
  const ScratchFolder scratch;
  const Taken taken(tiny_recipe({"model.layers=1", "model.heads=1"}));
  const auto refusal = [&](auto&& change) {
    Snapshot snapshot = taken.snapshot;
    HeadSnapshot& head = snapshot.inputs[0].layers[0].heads[0];
    head.offsets = head.offsets.clone(), head.keys = head.keys.clone();
    change(snapshot, head);
    save_snapshot(scratch / "s", snapshot);
    return refusal_of(scratch / "s");
  };
  EXPECT_EQ(refusal([](Snapshot&, HeadSnapshot&) {}), "");
  EXPECT_THAT(refusal([](Snapshot&, HeadSnapshot& head) { head.keys[0] = 8; }), HasSubstr("below the nodes"));
  EXPECT_THAT(refusal([](Snapshot&, HeadSnapshot& head) { head.keys[0] = -1; }), HasSubstr("keys that rise"));
  EXPECT_THAT(refusal([](Snapshot&, HeadSnapshot& head) { head.offsets[1] = 1 << 30; }),
              HasSubstr("offsets that rise"));
  EXPECT_THAT(refusal([](Snapshot&, HeadSnapshot& head) { head.offsets[8] = 1 << 30; }),
              HasSubstr("offsets that go from 0"));
  EXPECT_THAT(refusal([](Snapshot& s, HeadSnapshot&) { s.inputs[0].layers[0].queries = 1 << 20; }),
              HasSubstr("expected 'input.0.layer.0.head.0.offsets' to be Int [1048577]"));
  EXPECT_THAT(refusal([](Snapshot& s, HeadSnapshot&) { s.inputs[0].length = int64_t{1} << 60; }),
              HasSubstr("expected 'length' from 0"));
  EXPECT_THAT(refusal([](Snapshot&, HeadSnapshot& head) { head.density = -1; }),
              HasSubstr("expected 'density'"));
  EXPECT_THAT(refusal([](Snapshot&, HeadSnapshot& head) { head.weights = at::ones({3}, at::kHalf); }),
              HasSubstr("weights"));
  const auto described = [&](const std::string& about) {
    io::save_safetensors(scratch / "s",
                         {.tensors = {}, .metadata = {{"format", "edgewise.snapshot.1"}, {"about", about}}});
    return refusal_of(scratch / "s");
  };
  EXPECT_THAT(described(std::string(200'000, '[')), HasSubstr("JSON"));
  EXPECT_THAT(described(std::string(200'000, '[') + std::string(200'000, ']')), HasSubstr("JSON"));
  EXPECT_THAT(described("{}"), HasSubstr("'step'"));
  EXPECT_THAT(described(std::string(17 << 20, ' ')), HasSubstr("at most"));
}

// Dropout draws from torch's generator: a snapshot that took a number from it would show in every step after.
TEST(Snapshot, TrainingDoesNotNoticeThem) {
  const ScratchFolder scratch;
  for (const std::string kind : {"sbm", "sac", "dense", "window"}) {
    const std::string more = kind == "dense" ? "train.average=0.9" : "model.dropout=0.2";
    const auto recipe = [&](int64_t every) {
      return tiny_recipe({"attention.kind=" + kind, more, "train.snapshot_every=" + std::to_string(every)});
    };
    run(recipe(0), scratch / (kind + "-without"));
    run(recipe(5), scratch / (kind + "-with"));
    const auto file = [&](const char* which) {
      return io::load_safetensors(scratch / (kind + which) / "checkpoints" / "last.safetensors").tensors;
    };
    const auto without = file("-without"), with = file("-with");
    ASSERT_EQ(without.size(), with.size());
    for (const auto& [name, tensor] : without) EXPECT_TRUE(at::equal(tensor, with.at(name))) << kind << name;
    EXPECT_TRUE(std::filesystem::exists(scratch / (kind + "-with") / "snapshots/step-00000015.safetensors"));
    EXPECT_FALSE(std::filesystem::exists(scratch / (kind + "-without") / "snapshots"));
  }
}

TEST(Snapshot, ResumedRunsWriteTheSameBytes) {
  const ScratchFolder scratch;
  const Recipe recipe = tiny_recipe({"train.snapshot_every=6", "train.average=0.9"});
  run(recipe, scratch / "whole");
  struct Stop {};
  EXPECT_THROW(run(recipe, scratch / "cut", false,
                   [](int64_t step) {
                     if (step == 13) throw Stop();
                   }),
               Stop);
  run(recipe, scratch / "cut", true);
  for (const char* name : {"0", "6", "12", "18", "24"}) {
    const std::string file =
        std::string("step-") + std::string(8 - std::strlen(name), '0') + name + ".safetensors";
    EXPECT_EQ(io::read_file(scratch / "whole" / "snapshots" / file),
              io::read_file(scratch / "cut" / "snapshots" / file))
        << file;
  }
}

TEST(Snapshot, AsksForWhatThereIs) {
  EXPECT_THAT(parse_snapshot_inputs("0, 3,17"), testing::ElementsAre(0, 3, 17));
  for (const char* wrong : {"", ",", "1,", "1,,2", "-1", "1,1", "a", "1 2", "99999999999999999999"})
    EXPECT_THAT(message_of([&] { parse_snapshot_inputs(wrong); }), HasSubstr("train.snapshot_inputs"))
        << wrong;
  const ScratchFolder scratch;
  EXPECT_THAT(message_of([&] {
                run(tiny_recipe({"train.snapshot_every=5", "train.snapshot_inputs=32"}), scratch / "run");
              }),
              HasSubstr("below 32"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "run"));
  EXPECT_THAT(message_of([&] {
                run(tiny_recipe({"train.snapshot_every=5", "attention.kind=performer"}), scratch / "run");
              }),
              HasSubstr("no graph to show"));
}

// What runs of former versions have in their config.toml.
TEST(Snapshot, TheFormerSwitchMeansAtEveryValidation) {
  EXPECT_EQ(tiny_recipe({"train.snapshot_edges=true"}).train.snapshot_every, 8);
  EXPECT_EQ(tiny_recipe({"train.snapshot_edges=false"}).train.snapshot_every, 0);
  EXPECT_THAT(message_of([&] { tiny_recipe({"train.snapshot_edges=3"}); }), HasSubstr("snapshot_every"));
}

}  // namespace
}  // namespace edgewise::train
