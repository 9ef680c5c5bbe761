// The registry of attentions: what it lists, and what it refuses. (A kind of a program's own is trained in
// examples/strided_pattern.cpp, in a process of its own: kinds stay.)
#include <edgewise/train/attention_kinds.h>

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kit/message_of.h"
#include "train/recipe/kind_names.h"
#include "train/recipe/recipe_fields.h"

namespace edgewise::train {
namespace {

using kit::message_of;
using testing::HasSubstr;

LayerAttention nothing(const Recipe&, int64_t) {
  return {};
}

TEST(AttentionKinds, EveryKindIsCompleteAndEverySectionIsRead) {
  std::set<std::string> sections;
  for (const std::string& name : attention_names()) {
    const AttentionKind& kind = attention_kind(name);
    EXPECT_EQ(kind.name, name);
    EXPECT_FALSE(kind.meaning.empty()) << name;
    ASSERT_TRUE(kind.make) << name;
    for (const std::string& section : kind.sections) {
      EXPECT_FALSE(is_of_everybody(section)) << name << " reads " << section;
      sections.insert(section);
    }
    Recipe recipe;
    recipe.attention.kind = name;
    const LayerAttention made = kind.make(recipe, 64);
    EXPECT_EQ(made.is_dense(), name == "dense");
    EXPECT_LE(
        static_cast<bool>(made.edges) + static_cast<bool>(made.method) + static_cast<bool>(made.decoder), 1)
        << name;
    EXPECT_EQ(static_cast<bool>(made.decoder), kind.needs_text) << name;
  }
  const std::vector<std::string> tasks = task_names();  // which may have a section of their own
  for (const std::string& section : recipe_sections()) {
    // [graph] is read by the task of that name and by its kinds of attention.
    const bool is_of_a_task = section != "graph" && std::ranges::find(tasks, section) != tasks.end();
    EXPECT_EQ(sections.contains(section), !is_of_everybody(section) && !is_of_a_task) << section;
  }
}

TEST(AttentionKinds, ItIsSaidWhatACallLacks) {
  EXPECT_THAT(message_of([] { register_attention({.name = "sbm", .meaning = "", .make = nothing}); }),
              HasSubstr("expected a new name; 'sbm' is taken"));
  EXPECT_THAT(message_of([] { register_attention({.name = "mine", .meaning = "", .make = nullptr}); }),
              HasSubstr("a name and a function make"));
  EXPECT_THAT(message_of([] { register_attention({.name = "train", .meaning = "", .make = nothing}); }),
              HasSubstr("no section of a recipe has; got 'train'"));
  EXPECT_THAT(message_of([] {
                register_attention({.name = "mine", .meaning = "", .sections = {"nowhere"}, .make = nothing});
              }),
              HasSubstr("got 'nowhere' of 'mine'"));
  EXPECT_THAT(message_of([] { attention_kind("sbn"); }), HasSubstr("did you mean 'sbm'?"));
  for (const std::string& name : attention_names()) EXPECT_NE(name, "mine");
}

}  // namespace
}  // namespace edgewise::train
