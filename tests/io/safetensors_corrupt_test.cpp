// Damaged and hostile files: every one is refused with a message that names the file, none crashes or asks
// for memory that the file's size does not warrant.
#include <edgewise/io/safetensors.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include <torch/torch.h>

#include <edgewise/io/atomic_file.h>
#include <edgewise/io/environment.h>

#include "kit/scratch_folder.h"

namespace edgewise::io {
namespace {

using kit::ScratchFolder;
using ::testing::HasSubstr;

std::string length_prefix(uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}

std::string with_header(std::string_view json, std::string_view data = "") {
  std::string file = length_prefix(json.size());
  file += json;
  file += data;
  return file;
}

class CorruptSafetensors : public ::testing::Test {
 protected:
  void put(std::string_view bytes) {
    std::ofstream(path(), std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<long>(bytes.size()));
  }
  std::filesystem::path path() const { return folder_ / "bad.safetensors"; }

  // The message of the refusal; "" if the file was accepted.
  std::string refusal(std::string_view bytes) {
    put(bytes);
    std::string from_header, from_load;
    try {
      read_safetensors_header(path());
    } catch (const c10::ValueError& error) {
      from_header = error.what_without_backtrace();
    }
    try {
      load_safetensors(path());
    } catch (const c10::ValueError& error) {
      from_load = error.what_without_backtrace();
    }
    if (!from_header.empty()) {
      EXPECT_EQ(from_header, from_load);
      EXPECT_THAT(from_load, HasSubstr(path().string()));
      EXPECT_EQ(from_load.find('\n'), std::string::npos) << from_load;
    }
    return from_load;
  }

  std::string good_file() {
    TensorFile file;
    file.tensors["weight"] = at::arange(6, at::kFloat).reshape({2, 3});
    file.tensors["count"] = at::tensor({7}, at::kLong);
    file.tensors["mask"] = at::tensor({1, 0, 1}, at::kLong).to(at::kBool);
    file.metadata = {{"format", "pt"}};
    save_safetensors(path(), file);
    return read_file(path());
  }

  ScratchFolder folder_;
};

TEST_F(CorruptSafetensors, TruncatedAnywhere) {
  const std::string good = good_file();
  for (size_t size = 0; size < good.size(); ++size) EXPECT_NE(refusal(good.substr(0, size)), "") << size;
  EXPECT_EQ(refusal(good), "");
}

TEST_F(CorruptSafetensors, TrailingBytes) {
  EXPECT_THAT(refusal(good_file() + "x"), HasSubstr("describes"));
}

TEST_F(CorruptSafetensors, EveryBitFlipOfTheHeaderIsSurvived) {
  const std::string good = good_file();
  uint64_t header_size = 0;
  std::memcpy(&header_size, good.data(), 8);
  int refused = 0;
  for (size_t i = 0; i < 8 + header_size; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      refused += !refusal(bad).empty();
    }
  }
  // Most flips must be noticed; those within names and metadata cannot be.
  EXPECT_GT(refused, static_cast<int>(header_size) * 8 / 2);
}

// With checksums no flipped bit of the file reads as other numbers or another text.
TEST_F(CorruptSafetensors, ChecksumsNoticeEveryBitFlip) {
  const TensorFile file{{{"a", at::arange(5, at::kFloat)},
                         {"b", at::ones({2, 2}, at::kBFloat16)},
                         {"none", at::empty({0})},
                         {"a0", at::empty({0}, at::kLong)},
                         {"z0", at::empty({0}, at::kBFloat16)}},
                        {{"recipe", "[data]"}}};
  const kit::ScratchFolder scratch;
  const std::filesystem::path path = scratch.file("summed.safetensors");
  save_safetensors(path, file, /*checksums=*/true);
  const std::string whole = read_file(path);
  const TensorFile back = load_safetensors(path);
  EXPECT_TRUE(at::equal(back.tensors.at("a"), file.tensors.at("a")));
  EXPECT_EQ(back.metadata.at("recipe"), "[data]");
  int64_t unnoticed = 0;
  for (size_t bit = 64; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] ^= static_cast<char>(1 << bit % 8);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;
    try {
      const TensorFile read = load_safetensors(path);
      // A flip in the name of the checksums' entry: nothing is compared, and nothing else is damaged.
      if (!read.metadata.contains("edgewise.crc32c")) {
        for (const auto& [name, tensor] : file.tensors)
          EXPECT_TRUE(at::equal(read.tensors.at(name), tensor)) << bit;
        EXPECT_EQ(read.metadata.at("recipe"), "[data]") << bit;
        continue;
      }
      ++unnoticed;
    } catch (const c10::Error&) {
    }
  }
  EXPECT_EQ(unnoticed, 0);
}

TEST_F(CorruptSafetensors, RandomBytes) {
  uint64_t state = 1;
  for (int trial = 0; trial < 300; ++trial) {
    std::string body(200, '\0');
    for (char& c : body)
      c = static_cast<char>((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
    if (trial % 2) body[0] = '{';
    EXPECT_NE(refusal(with_header(body)), "");
  }
}

TEST_F(CorruptSafetensors, HeaderLength) {
  EXPECT_THAT(refusal(""), HasSubstr("too few"));
  EXPECT_THAT(refusal(length_prefix(100'000'001) + "{}"), HasSubstr("limit"));
  EXPECT_THAT(refusal(length_prefix(~uint64_t{0}) + "{}"), HasSubstr("limit"));
  EXPECT_THAT(refusal(length_prefix(99'000'000) + "{}"), HasSubstr("claims a header"));
  EXPECT_THAT(refusal(length_prefix(0)), HasSubstr("start with"));
}

TEST_F(CorruptSafetensors, NotTheJsonWeExpect) {
  for (const char* json : {"",
                           " {}",
                           "[]",
                           "null",
                           "{",
                           "}",
                           "{}}",
                           "{} x",
                           "{}{}",
                           "\xEF\xBB\xBF{}",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1}",
                           "{\"a\":null}",
                           "{\"a\":[]}",
                           "{\"a\":\"x\"}",
                           "{\"a\":{}}",
                           "{\"a\":true}",
                           "{\"a\":{\"dtype\":\"F32\"}}",
                           "{\"a\":{\"dtype\":{},\"shape\":[],\"data_offsets\":[0,0]}}",
                           "{'a':1}",
                           "{/**/}",
                           "{,}",
                           "{\"a\":{},}"}) {
    EXPECT_NE(refusal(with_header(json)), "") << json;
  }
  EXPECT_NE(refusal(with_header(std::string_view("{}\0garbage", 10))), "");
  EXPECT_EQ(refusal(with_header("{}  ")), "");
  EXPECT_EQ(refusal(with_header("{ \"__metadata__\" : { } }")), "");
}

TEST_F(CorruptSafetensors, BadEntries) {
  const auto entry = [&](std::string_view fields) {
    std::string json = "{\"a\":{";
    json += fields;
    json += "}}";
    return refusal(with_header(json, "12345678"));
  };
  EXPECT_EQ(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), "");
  EXPECT_EQ(entry(R"("data_offsets":[0,8],"shape":[1,2,1],"dtype":"F32")"), "");
  EXPECT_THAT(entry(R"("dtype":"F31","shape":[2],"data_offsets":[0,8])"), HasSubstr("'F31'"));
  EXPECT_THAT(entry(R"("dtype":"f32","shape":[2],"data_offsets":[0,8])"), HasSubstr("'f32'"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), HasSubstr("needs 12 bytes"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[],"data_offsets":[0,8])"), HasSubstr("needs 4 bytes"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), HasSubstr("data_offsets"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[2],"data_offsets":[8,16])"), HasSubstr("hole"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), HasSubstr("two numbers"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"), HasSubstr("two numbers"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[2],"data_offsets":[-0,8])"), HasSubstr("negative"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])"), HasSubstr("negative"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0.0,8.0])"), HasSubstr("fraction"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,99999999999999999999])"),
              HasSubstr("too large"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[2],"data_offsets":["0",8])"), HasSubstr("string"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[2],"data_offsets":{})"), HasSubstr("object"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), HasSubstr("negative"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[2.5],"data_offsets":[0,8])"), HasSubstr("fraction"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"), HasSubstr("array"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"), HasSubstr("number"));
  EXPECT_THAT(entry(R"("dtype":32,"shape":[2],"data_offsets":[0,8])"), HasSubstr("number"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"extra":1)"), HasSubstr("'extra'"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[2])"), HasSubstr("lacks"));
}

TEST_F(CorruptSafetensors, SizesThatOverflow) {
  const auto shape = [&](std::string_view dimensions, std::string_view end) {
    std::string json = R"({"a":{"dtype":"F64","shape":[)";
    json += dimensions;
    json += R"(],"data_offsets":[0,)";
    json += end;
    json += "]}}";
    return refusal(with_header(json));
  };
  EXPECT_THAT(shape("4294967296,4294967296", "0"), HasSubstr("too large"));  // product wraps to 0
  EXPECT_THAT(shape("2305843009213693952", "0"), HasSubstr("too large"));    // times 8 wraps to 0
  EXPECT_THAT(shape("9223372036854775808", "0"), HasSubstr("dimension"));    // not an int64
  EXPECT_THAT(shape("0,9223372036854775807,9", "0"),
              HasSubstr("too large"));  // empty, but the strides overflow
  EXPECT_THAT(shape("1152921504606846976", "9223372036854775808"), HasSubstr("too large"));
  EXPECT_THAT(shape("1099511627776", "8796093022208"),
              HasSubstr("holds 0"));  // 8 TiB that the file does not have
  std::string many = "1";
  for (int i = 0; i < 100; ++i) many += ",1";
  EXPECT_THAT(shape(many, "8"), HasSubstr("dimensions"));
}

TEST_F(CorruptSafetensors, OverlapsAndHoles) {
  const auto two = [&](std::string_view a, std::string_view b, std::string_view data) {
    std::string json = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)";
    json += a;
    json += R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)";
    json += b;
    json += "}}";
    return refusal(with_header(json, data));
  };
  EXPECT_EQ(two("[0,4]", "[4,8]", "12345678"), "");
  EXPECT_EQ(two("[4,8]", "[0,4]", "12345678"), "");  // any order in the JSON
  EXPECT_THAT(two("[0,4]", "[0,4]", "1234"), HasSubstr("overlap"));
  EXPECT_THAT(two("[0,4]", "[2,6]", "123456"), HasSubstr("overlap"));
  EXPECT_THAT(two("[0,4]", "[5,9]", "123456789"), HasSubstr("hole"));
  EXPECT_THAT(two("[1,5]", "[5,9]", "123456789"), HasSubstr("hole"));
  EXPECT_THAT(two("[0,4]", "[4,8]", "123456789"), HasSubstr("describes 8 bytes"));
  EXPECT_THAT(two("[0,4]", "[4,8]", "1234567"), HasSubstr("describes 8 bytes"));
}

TEST_F(CorruptSafetensors, EmptyTensorsMayTouchButNotFloat) {
  const auto empty_at = [&](std::string_view offsets) {
    std::string json =
        R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"e":{"dtype":"U8","shape":[0],"data_offsets":)";
    json += offsets;
    json += "}}";
    return refusal(with_header(json, "1234"));
  };
  EXPECT_EQ(empty_at("[0,0]"), "");
  EXPECT_EQ(empty_at("[4,4]"), "");
  EXPECT_THAT(empty_at("[2,2]"), HasSubstr("overlap"));
  EXPECT_THAT(empty_at("[5,5]"), HasSubstr("hole"));
}

TEST_F(CorruptSafetensors, DuplicateKeys) {
  const std::string entry = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_THAT(refusal(with_header(c10::str("{\"a\":", entry, ",\"a\":", entry, "}"))), HasSubstr("twice"));
  EXPECT_THAT(refusal(with_header(c10::str("{\"a\":", entry, ",\"\\u0061\":", entry, "}"))),
              HasSubstr("twice"));
  EXPECT_THAT(refusal(with_header(R"({"__metadata__":{},"__metadata__":{}})")), HasSubstr("twice"));
  EXPECT_THAT(refusal(with_header(R"({"__metadata__":{"k":"1","k":"2"}})")), HasSubstr("twice"));
  EXPECT_THAT(refusal(with_header(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})")),
              HasSubstr("twice"));
}

TEST_F(CorruptSafetensors, MetadataIsTextOnly) {
  for (const char* value : {"1", "1.5", "-1", "true", "null", "[]", "{}", "[\"x\"]"}) {
    EXPECT_THAT(refusal(with_header(c10::str("{\"__metadata__\":{\"k\":", value, "}}"))),
                HasSubstr("not a string"))
        << value;
  }
  EXPECT_NE(refusal(with_header(R"({"__metadata__":"text"})")), "");
  EXPECT_NE(refusal(with_header(R"({"__metadata__":[]})")), "");
}

TEST_F(CorruptSafetensors, DeepNestingNeedsNoStack) {
  for (const char* open : {"[", "{\"a\":"}) {
    std::string json = "{\"a\":";
    for (int i = 0; i < 3'000'000; ++i) json += open;
    EXPECT_NE(refusal(with_header(json)), "");
  }
}

TEST_F(CorruptSafetensors, InvalidUtf8) {
  for (const char* name : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe2\x82"}) {
    EXPECT_NE(refusal(with_header(c10::str("{\"__metadata__\":{\"k\":\"", name, "\"}}"))), "");
    EXPECT_NE(refusal(with_header(c10::str("{\"__metadata__\":{\"", name, "\":\"v\"}}"))), "");
  }
  EXPECT_NE(refusal(with_header(R"({"__metadata__":{"k":"\ud800"}})")), "");  // half a surrogate pair
}

TEST_F(CorruptSafetensors, BoolsOtherThanZeroAndOne) {
  const std::string_view json = R"({"m":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})";
  EXPECT_EQ(refusal(with_header(json, std::string_view("\x01\0", 2))), "");
  EXPECT_THAT(refusal(with_header(json, "\x01\x02")), HasSubstr("BOOL"));
}

TEST_F(CorruptSafetensors, HostileNamesGiveOneShortLine) {
  std::string json = "{\"";
  json += std::string(100'000, 'n') + "\\n\":1}";
  EXPECT_LT(refusal(with_header(json)).size(), 500u);
}

TEST_F(CorruptSafetensors, NotAFile) {
  EXPECT_THROW(load_safetensors(folder_ / "missing"), std::system_error);
  EXPECT_THROW(load_safetensors(folder_.path()), c10::ValueError);
  EXPECT_THROW(load_safetensors("/dev/zero"), c10::ValueError);
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(load_safetensors(folder_ / "pipe"), c10::ValueError);  // and does not wait for a writer
}

}  // namespace
}  // namespace edgewise::io
