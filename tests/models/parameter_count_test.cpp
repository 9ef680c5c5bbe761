// Parameter counts of the five Long Range Arena models of the SBM paper, with SBM edges and with dense
// attention.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <edgewise/edges/sbm_edges.h>
#include <edgewise/models/classifier.h>

namespace edgewise {
namespace {

struct Task {
  const char* name;
  int64_t length, vocabulary, classes, towers, sbm, dense;
};
void PrintTo(const Task& task, std::ostream* stream) {
  *stream << task.name;
}

class ParameterCount : public testing::TestWithParam<Task> {};

int64_t count(const torch::nn::Module& model) {
  int64_t total = 0;
  for (const auto& parameter : model.parameters()) total += parameter.numel();
  return total;
}

int64_t build_and_count(const Task& task, bool sbm) {
  ClassifierOptions options;
  options.encoder.vocabulary = task.vocabulary;
  options.encoder.max_length = task.length;
  options.classes = task.classes;
  if (sbm) {
    options.encoder.edges = [](int64_t) {
      return SbmEdges(SbmEdgesOptions(2, 32, SbmPreset::kPublished)).ptr();
    };
  }
  return task.towers == 2 ? count(*TwoTowerClassifier(options)) : count(*SequenceClassifier(options));
}

TEST_P(ParameterCount, MatchesThePublishedModel) {
  EXPECT_EQ(build_and_count(GetParam(), true), GetParam().sbm);
  EXPECT_EQ(build_and_count(GetParam(), false), GetParam().dense);
}
INSTANTIATE_TEST_SUITE_P(LongRangeArena, ParameterCount,
                         testing::Values(Task{"ListOps", 2048, 32, 10, 1, 230'410, 209'802},
                                         Task{"Text", 3072, 512, 2, 1, 325'634, 305'026},
                                         Task{"Retrieval", 4096, 512, 2, 2, 415'746, 395'138},
                                         Task{"Image", 1024, 512, 10, 1, 195'594, 174'986},
                                         Task{"Pathfinder", 1024, 512, 2, 1, 194'562, 173'954}));

TEST(ParameterNames, FollowTheTransformerEncoderOfTorch) {
  ClassifierOptions options;
  options.encoder.vocabulary = 8;
  options.encoder.max_length = 4;
  const auto parameters = SequenceClassifier(options)->named_parameters();
  for (const char* name :
       {"encoder.token_embedding.weight", "encoder.position_embedding.weight",
        "encoder.layers.1.self_attn.in_proj_weight", "encoder.layers.1.self_attn.out_proj.bias",
        "encoder.layers.0.linear1.weight", "encoder.layers.0.linear2.bias", "encoder.layers.0.norm1.weight",
        "encoder.layers.1.norm2.bias", "encoder.norm.weight", "head.linear1.weight"}) {
    EXPECT_TRUE(parameters.contains(name)) << name;
  }
}

TEST(ParameterNames, NoNormMeansNoLayerNormAtAll) {
  ClassifierOptions options;
  options.encoder.vocabulary = 8;
  options.encoder.max_length = 4;
  options.encoder.style.norm = false;
  options.encoder.positions = Positions::kNone;
  for (const auto& item : TokenClassifier(options)->named_parameters()) {
    EXPECT_EQ(item.key().find("norm"), std::string::npos) << item.key();
    EXPECT_EQ(item.key().find("position"), std::string::npos) << item.key();
  }
}

}  // namespace
}  // namespace edgewise
