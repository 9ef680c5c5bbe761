// What rank 0 has read of a run, told to the others: only rank 0 opens the files of a run.
#pragma once

#include <edgewise/train/checkpoint.h>
#include <edgewise/train/optimizer.h>
#include <edgewise/train/ranks.h>
#include <edgewise/train/weight_average.h>

namespace edgewise::train {

// Parameters and buffers of rank 0, in the model of every rank.
void share_weights(Ranks& ranks, torch::nn::Module& model);
// The rest: state of the optimiser, averages, where the run stands. info.memories stay whole.
void share_run(Ranks& ranks, Optimizer& optimizer, WeightAverage* average, CheckpointInfo& info, bool& saved);
// Throws, naming the first parameter, where the models of the ranks are no longer the same: a checkpoint of
// rank 0 would not be the run.
void expect_same_weights(Ranks& ranks, const torch::nn::Module& model);

}  // namespace edgewise::train
