// Labelled texts as a data set and a task: batches, files that come back, damaged files, the squared error.
#include <edgewise/data/byte_tokenizers.h>
#include <edgewise/data/examples/import_table.h>
#include <edgewise/data/examples/labelled_text.h>
#include <edgewise/io/safetensors.h>
#include <edgewise/tasks/text_answers.h>

#include <torch/torch.h>

#include "data/examples/examples_kit.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

using kit::ScratchFolder;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kRows = "text\tlabel\nab\t5\nabc\t1\nabcdefghijklmnopqrstuvwxyz\t1\n";

void save(const ScratchFolder& scratch, AnswerKind answer, const std::string& metric = "") {
  TableImportOptions options;
  options.train.file = scratch.write("t.tsv", kRows);
  options.validation = options.test = {options.train};
  options.tokenizer = std::make_shared<BytesTokenizer>();
  options.answer = answer;
  options.metric = metric;
  const ImportedTable made = import_table(options);
  save_token_examples(scratch / "data", made.examples, made.reader);
}

std::vector<int64_t> ids(const at::Tensor& row) {
  return {row.const_data_ptr<int64_t>(), row.const_data_ptr<int64_t>() + row.numel()};
}

TEST(LabelledText, ABatchIsPaddedToItsLongest) {
  const ScratchFolder scratch;
  save(scratch, AnswerKind::kClass);
  const LabelledText texts(scratch / "data");
  EXPECT_EQ(texts.size(Split::kTrain), 3);
  EXPECT_EQ(texts.classes(), 2);
  EXPECT_EQ(texts.vocabulary(), 259);
  EXPECT_EQ(texts.max_length(), 32);
  EXPECT_EQ(texts.line(Split::kTest, 1), 3);
  EXPECT_THAT(texts.summary(), HasSubstr("one of 2 labels from t.tsv"));
  const Batch two = texts.batch(Split::kTrain, std::vector<int64_t>{1, 0});
  EXPECT_EQ(two.towers[0].tokens.sizes(), (std::vector<int64_t>{2, 16}));
  EXPECT_EQ(ids(two.towers[0].tokens[1].slice(0, 0, 3)), (std::vector<int64_t>{'a' + 1, 'b' + 1, 0}));
  EXPECT_EQ(two.towers[0].mask.sum(1).to(at::kLong)[0].item<int64_t>(), 3);
  EXPECT_EQ(ids(two.labels), (std::vector<int64_t>{0, 1})) << "1 before 5";
  const Batch all = texts.batch(Split::kTrain, std::vector<int64_t>{0, 1, 2});
  EXPECT_EQ(all.towers[0].length(), 32);
  // Padding that only the longest needed is not computed for the others.
  EXPECT_EQ(slice_items(all, 0, 2).towers[0].length(), 16);
}

TEST(LabelledText, NumbersAreLearnedInUnitsOfTheirSpread) {
  const ScratchFolder scratch;
  save(scratch, AnswerKind::kNumber);
  const auto texts = std::make_shared<LabelledText>(scratch / "data");
  const tasks::TextAnswers task(texts);
  const Batch batch = texts->batch(Split::kTrain, std::vector<int64_t>{0, 1});
  const double mean = 7.0 / 3, scale = std::sqrt(32.0 / 9);
  EXPECT_NEAR(batch.labels[0].item<double>(), (5 - mean) / scale, 1e-6);
  const at::Tensor logits = at::tensor({{(5 - mean) / scale}, {1.0}});
  EXPECT_NEAR(task.objective().score(logits.to(at::kFloat), batch).loss.item<double>(),
              std::pow(1.0 - (1 - mean) / scale, 2) / 2, 1e-5);
  const std::vector<double> answers = task.answers_of(logits);
  EXPECT_NEAR(answers[0], 5, 1e-9);
  EXPECT_NEAR(answers[1], mean + scale, 1e-9);
  EXPECT_EQ(task.metric().name, "pearson");
  EXPECT_EQ(task.baselines(Split::kTest).at(0).value, 0) << "one answer for all correlates with nothing";
}

TEST(LabelledText, ATaskIsJudgedByTheFigureOfItsData) {
  const ScratchFolder scratch;
  save(scratch, AnswerKind::kClass, "matthews");
  const auto texts = std::make_shared<LabelledText>(scratch / "data");
  const tasks::TextAnswers task(texts);
  EXPECT_EQ(task.metric().name, "matthews");
  const auto figures = task.figures({0, 1, 2}, {1, 0, 0}, Split::kTest);
  for (const tasks::Figure& figure : figures) EXPECT_NEAR(figure.value, 1, 1e-12) << figure.name;
  EXPECT_NEAR(task.figures({2, 0}, {1, 1}, Split::kTest).at(0).value, .5, 1e-12) << "by index";
  EXPECT_EQ(task.baselines(Split::kTest).at(0).name, "most frequent label of train");
  save(scratch, AnswerKind::kClass, "pearson");
  EXPECT_THAT(complaint([&] { tasks::TextAnswers(std::make_shared<LabelledText>(scratch / "data")); }),
              HasSubstr("expected a metric of classes; found pearson"));
}

TEST(TokenExamples, ADamagedFileIsSaidToBe) {
  const ScratchFolder scratch;
  const std::filesystem::path file = token_examples_path(scratch / "data");
  const auto says = [&](const std::function<void(io::TensorFile&)>& damage) {
    save(scratch, AnswerKind::kClass);
    io::TensorFile tensors = io::load_safetensors(file);
    damage(tensors);
    io::save_safetensors(file, tensors);
    const std::string message = complaint([&] { LabelledText(scratch / "data"); });
    EXPECT_THAT(message, HasSubstr(file.string()));
    return message;
  };
  EXPECT_THAT(says([](auto& f) { f.metadata["format"] = "other"; }),
              HasSubstr("expected metadata format = edgewise.token_examples.1; found 'other'"));
  EXPECT_THAT(says([](auto& f) { f.tensors["train.tokens"][0] = 7; }), HasSubstr("the file is damaged"));
  EXPECT_THAT(says([](auto& f) { f.tensors.erase("test.lengths"); }),
              HasSubstr("expected a tensor 'test.lengths'; found none"));
  EXPECT_THAT(says([](auto& f) { f.tensors["train.lengths"][0] = 3; }), HasSubstr("lengths that add up to"));
  EXPECT_THAT(says([](auto& f) { f.tensors["train.lengths"][0] = 0; }), HasSubstr("lengths of at least 1"));
  EXPECT_THAT(says([](auto& f) { f.tensors["test.answers"][0] = 2; }),
              HasSubstr("expected test.answers below 2; found 2"));
  EXPECT_THAT(
      says([](auto& f) { f.tensors["test.answers"] = f.tensors["test.answers"].slice(0, 1).clone(); }),
      HasSubstr("expected 3 test.answers; found 2"));
  EXPECT_THAT(says([](auto& f) { f.tensors["train.lines"] = at::zeros({3}); }),
              HasSubstr("to be a list of Int"));
  EXPECT_THAT(complaint([&] { LabelledText(scratch / "nothing"); }),
              HasSubstr("Make it with: edgewise data tsv FILE"));
}

}  // namespace
}  // namespace edgewise::data
