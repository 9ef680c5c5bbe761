// What must hold when writing goes wrong: the old file stays, nothing else is left behind, the error names
// file and reason.
#include <edgewise/io/atomic_file.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <system_error>

#include <edgewise/io/append_file.h>

#include "kit/scratch_folder.h"

namespace edgewise::io {
namespace {

using kit::ScratchFolder;
using ::testing::HasSubstr;

size_t count_entries(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

template <typename Error = std::system_error, typename Function>
std::string message_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

// A full disk without one: writes beyond `bytes` fail with EFBIG, after a short write, while this lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_ = SIG_DFL;
};

TEST(AtomicFile, WritesAndReplaces) {
  ScratchFolder folder;
  write_file_atomically(folder / "a", "first");
  EXPECT_EQ(read_file(folder / "a"), "first");
  write_file_atomically(folder / "a", "");
  EXPECT_EQ(read_file(folder / "a"), "");
  EXPECT_EQ(count_entries(folder.path()), 1u);
}

TEST(AtomicFile, TargetIsUntouchedUntilCommit) {
  ScratchFolder folder;
  write_file_atomically(folder / "a", "old");
  AtomicFile file(folder / "a");
  file.write("ne");
  EXPECT_EQ(read_file(folder / "a"), "old");
  file.write("w");
  file.commit();
  EXPECT_EQ(read_file(folder / "a"), "new");
  EXPECT_THROW(file.write("more"), std::logic_error);
  EXPECT_THROW(file.commit(), std::logic_error);
}

TEST(AtomicFile, WithoutCommitNothingChanges) {
  ScratchFolder folder;
  write_file_atomically(folder / "a", "old");
  { AtomicFile(folder / "a").write("new"); }
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(count_entries(folder.path()), 1u);
}

TEST(AtomicFile, FailedWriteKeepsOldFileAndRemovesTemporary) {
  ScratchFolder folder;
  write_file_atomically(folder / "a", "old");
  std::string message;
  {
    FileSizeLimit limit(1000);
    message = message_of([&] { write_file_atomically(folder / "a", std::string(5000, 'x')); });
  }
  EXPECT_THAT(message, HasSubstr((folder / "a").string()));
  EXPECT_THAT(message, HasSubstr("File too large"));
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(count_entries(folder.path()), 1u);
}

TEST(AtomicFile, LeftoverOfAKilledWriterIsReused) {
  ScratchFolder folder;
  std::ofstream(folder / ".a.tmp") << "a much longer text than the new one";
  write_file_atomically(folder / "a", "new");
  EXPECT_EQ(read_file(folder / "a"), "new");
  EXPECT_EQ(count_entries(folder.path()), 1u);
}

TEST(AtomicFile, TwoWritersOfOneTargetAreKeptApart) {
  ScratchFolder folder;
  AtomicFile first(folder / "a");
  EXPECT_THAT(message_of([&] { AtomicFile second(folder / "a"); }),
              HasSubstr("another process is writing '" + folder.file("a") + "'"));
  first.write("first");
  first.commit();
  EXPECT_EQ(read_file(folder / "a"), "first");
}

TEST(AtomicFile, MissingFolder) {
  ScratchFolder folder;
  const auto message = message_of([&] { write_file_atomically(folder / "no/such/a", "x"); });
  // What was asked for, not the temporary file or a class of ours.
  EXPECT_EQ(message, "cannot write '" + folder.file("no/such/a") + "': No such file or directory");
}

TEST(AtomicFile, UnwritableFolder) {
  // /proc refuses new files even to root, whom permissions do not stop.
  EXPECT_THROW(write_file_atomically("/proc/edgewise", "x"), std::system_error);
  if (::geteuid() == 0) return;
  ScratchFolder folder;
  ::chmod(folder.path().c_str(), 0500);
  EXPECT_THAT(message_of([&] { write_file_atomically(folder / "a", "x"); }), HasSubstr("Permission denied"));
  ::chmod(folder.path().c_str(), 0700);
}

TEST(AtomicFile, TargetIsADirectory) {
  ScratchFolder folder;
  std::filesystem::create_directory(folder / "d");
  EXPECT_THAT(message_of([&] { write_file_atomically(folder / "d", "x"); }), HasSubstr("Is a directory"));
  EXPECT_THAT(message_of([&] { write_file_atomically(folder / "d/", "x"); }), HasSubstr("Is a directory"));
  EXPECT_THROW(write_file_atomically("", "x"), std::system_error);
  EXPECT_EQ(count_entries(folder.path()), 1u);
}

TEST(AtomicFile, DirectoryThatAppearsBeforeCommit) {
  ScratchFolder folder;
  AtomicFile file(folder / "a");
  std::filesystem::create_directory(folder / "a");
  EXPECT_THROW(file.commit(), std::system_error);
  EXPECT_EQ(count_entries(folder.path()), 1u);
}

TEST(AtomicFile, KeepsModeAndFollowsLinks) {
  ScratchFolder folder;
  write_file_atomically(folder / "a", "old");
  ::chmod((folder / "a").c_str(), 0640);
  std::filesystem::create_symlink("a", folder / "link");
  write_file_atomically(folder / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "a"), "new");
  struct stat info {};
  ::stat((folder / "a").c_str(), &info);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST(AtomicFile, RelativePathInTheCurrentFolder) {
  ScratchFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  write_file_atomically("plain", "x");
  EXPECT_EQ(read_file("plain"), "x");
  std::filesystem::current_path(before);
}

TEST(ReadFile, AnyKind) {
  EXPECT_FALSE(read_file("/proc/self/status").empty());  // claims size 0
  EXPECT_EQ(read_file("/dev/null"), "");
  ScratchFolder folder;
  std::string large(3'000'001, 'x');
  large[1'000'000] = '\0';
  write_file_atomically(folder / "large", large);
  EXPECT_EQ(read_file(folder / "large"), large);
}

TEST(ReadFile, ErrorsNameTheFile) {
  EXPECT_THAT(message_of([] { read_file("/no/such/file"); }),
              ::testing::AllOf(HasSubstr("'/no/such/file'"), HasSubstr("No such file or directory")));
  EXPECT_THAT(message_of([] { read_file("/tmp"); }), HasSubstr("Is a directory"));
}

TEST(AppendFile, AppendsAndTakesBackAFailedAppend) {
  ScratchFolder folder;
  AppendFile(folder / "log").append("one\n");
  AppendFile log(folder / "log");
  log.append("two\n");
  {
    FileSizeLimit limit(100);
    EXPECT_THROW(log.append(std::string(500, 'x')), std::system_error);
  }
  log.append("three\n");
  EXPECT_EQ(read_file(folder / "log"), "one\ntwo\nthree\n");
  EXPECT_THROW(AppendFile(folder / "log", AppendFile::Open::kCreateNew), std::system_error);
}

}  // namespace
}  // namespace edgewise::io
