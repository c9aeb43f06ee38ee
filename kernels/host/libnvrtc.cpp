// A stand-in for NVRTC: compiles the unmodified kernels with the host's C++ compiler and the same -D specialisations.
//
// What it calls a cubin is a shared library behind a short head (libcuda.cpp loads it). NTC_EMU_CXX names the compiler,
// NTC_EMU_CXXFLAGS adds flags, for example -fsanitize=address.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace {

/// The text of cuda_emu.h.
const char SHIM[] =
#include "cuda_emu_text.inc"
    ;

enum Result : int { SUCCESS = 0, INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5, COMPILATION = 6 };

struct Program {
    std::string source, name, log, image;
    std::vector<std::pair<std::string, std::string>> headers;
};

std::string variable(const char* name, const char* otherwise) {
    const char* text = getenv(name);
    return text != nullptr && text[0] != 0 ? text : otherwise;
}

std::string compiler() {
    return variable("NTC_EMU_CXX", variable("CXX", "c++").c_str());
}

std::string fixed_flags() {
    std::string flags = "-std=c++17 -O2 -fPIC -shared -fno-exceptions -fno-rtti -fno-math-errno -w ";
#if defined(__x86_64__)
    if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2")) {
        flags += "-mavx2 -mfma ";
    }
#endif
    return flags + variable("NTC_EMU_CXXFLAGS", "");
}

std::string quoted(const std::string& text) {
    std::string out = "'";
    for (char c : text) {
        out += c == '\'' ? "'\\''" : std::string(1, c);
    }
    return out + "'";
}

bool write_file(const std::string& path, const std::string& text) {
    FILE* file = fopen(path.c_str(), "wb");
    if (file == nullptr) {
        return false;
    }
    const bool whole = fwrite(text.data(), 1, text.size(), file) == text.size();
    return fclose(file) == 0 && whole;
}

std::string read_file(const std::string& path) {
    std::string text;
    if (FILE* file = fopen(path.c_str(), "rb")) {
        char part[65536];
        for (size_t n; (n = fread(part, 1, sizeof(part), file)) > 0;) {
            text.append(part, n);
        }
        fclose(file);
    }
    return text;
}

/// NVRTC's options that mean something here, as the compiler's own.
std::string translated(int count, const char* const* options) {
    std::string flags;
    bool contract = true;  // as NVRTC's default
    for (int k = 0; k < count; ++k) {
        const std::string option = options[k];
        if (option.rfind("-D", 0) == 0) {
            flags += quoted(option) + " ";
        } else if (option == "--fmad=false") {
            contract = false;
        }
    }
    return flags + (contract ? "-ffp-contract=fast" : "-ffp-contract=off");
}

int compile_in(Program& program, const std::string& folder, const std::string& flags) {
    bool whole = write_file(folder + "/cuda_emu.h", SHIM) && write_file(folder + "/" + program.name, program.source);
    for (const auto& [name, text] : program.headers) {
        whole = whole && write_file(folder + "/" + name, text);
    }
    if (!whole) {
        program.log = "the sources could not be written to " + folder;
        return COMPILATION;
    }
    const std::string command = "cd " + quoted(folder) + " && " + compiler() + " " + fixed_flags() + " " + flags +
                                " -include cuda_emu.h -x c++ " + quoted(program.name) + " -o kernels.so > log 2>&1";
    const int status = system(command.c_str());
    program.log = read_file(folder + "/log");
    if (status != 0) {
        program.log += "\n(" + compiler() + ": a C++17 compiler is needed for the emulation; NTC_EMU_CXX names one)";
        return COMPILATION;
    }
    const std::string library = read_file(folder + "/kernels.so");
    const uint64_t length = library.size();
    program.image.assign("NTCEMU1\0", 8);
    program.image.append(reinterpret_cast<const char*>(&length), 8);
    program.image += library;
    return length > 0 ? SUCCESS : COMPILATION;
}

void remove_folder(const Program& program, const std::string& folder) {
    for (const auto& [name, text] : program.headers) {
        unlink((folder + "/" + name).c_str());
    }
    for (const std::string& name : {program.name, std::string("cuda_emu.h"), std::string("log"), std::string("kernels.so")}) {
        unlink((folder + "/" + name).c_str());
    }
    rmdir(folder.c_str());
}

}  // namespace

extern "C" {

/// Everything besides sources and options that decides what a compilation gives.
const char* ntc_emu_identity(void) {
    static const std::string identity = compiler() + " " + fixed_flags() + " " + SHIM;
    return identity.c_str();
}

int nvrtcVersion(int* major, int* minor) {
    *major = 13;
    *minor = 0;
    return SUCCESS;
}
const char* nvrtcGetErrorString(int code) {
    return code == COMPILATION ? "compilation failed" : "error";
}
int nvrtcCreateProgram(void** program, const char* source, const char* name, int count, const char* const* headers,
                       const char* const* names) {
    Program* made = new Program;
    made->source = source;
    made->name = name != nullptr ? name : "program.cu";
    for (int k = 0; k < count; ++k) {
        made->headers.emplace_back(names[k], headers[k]);
    }
    *program = made;
    return SUCCESS;
}
int nvrtcDestroyProgram(void** program) {
    delete static_cast<Program*>(*program);
    *program = nullptr;
    return SUCCESS;
}
int nvrtcCompileProgram(void* program, int count, const char* const* options) {
    Program& of = *static_cast<Program*>(program);
    std::string folder = variable("TMPDIR", "/tmp") + "/ntc-emu-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) {
        of.log = "no folder for temporary files: " + folder;
        return COMPILATION;
    }
    const int result = compile_in(of, folder, translated(count, options));
    remove_folder(of, folder);
    return result;
}
int nvrtcGetProgramLogSize(void* program, size_t* bytes) {
    *bytes = static_cast<Program*>(program)->log.size() + 1;
    return SUCCESS;
}
int nvrtcGetProgramLog(void* program, char* log) {
    const std::string& text = static_cast<Program*>(program)->log;
    memcpy(log, text.c_str(), text.size() + 1);
    return SUCCESS;
}
int nvrtcGetCUBINSize(void* program, size_t* bytes) {
    *bytes = static_cast<Program*>(program)->image.size();
    return SUCCESS;
}
int nvrtcGetCUBIN(void* program, char* image) {
    const std::string& bytes = static_cast<Program*>(program)->image;
    memcpy(image, bytes.data(), bytes.size());
    return SUCCESS;
}
int nvrtcGetPTXSize(void*, size_t*) {
    return INVALID_PROGRAM;
}
int nvrtcGetPTX(void*, char*) {
    return INVALID_PROGRAM;
}

}  // extern "C"
