// What a power cut does not take: bytes after fsync of their file, names after fsync of their folder.
// atomic_file.cpp has the code.
#pragma once

#include <filesystem>

namespace edgewise::io {

// What an AppendFile of this process has appended to, and is not durable yet: AtomicFile makes it so before
// its own file appears. A checkpoint never outlives the records of the steps that it has behind it.
void note_appended(const std::filesystem::path& path);
void sync_appended();
// Makes the names in a folder durable.
void sync_folder(const std::filesystem::path& folder);
// std::filesystem::create_directories, and the names of those that were missing are durable.
void create_durable_folders(const std::filesystem::path& folder);

}  // namespace edgewise::io
