// A stand-in for the CUDA driver: the calls that cudarc makes for this program, over host memory and the kernels that the
// stand-in compiler made (libnvrtc.cpp). It checks what a GPU would: bounds of copies, launch limits, names of kernels, and
// says in one line what was wrong; cuGetErrorString gives that line.
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <string>

namespace {

enum Result : int {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_FAILED = 719,
};

// The same layouts as in cuda_emu.h, which lives in the kernels' libraries.
struct Dim3 {
    unsigned x, y, z;
};
struct Launch {
    Dim3 grid, block;
    unsigned shared_bytes;
    uint64_t order;
    char* message;
    size_t message_size;
};
struct Kernel {
    const char* name;
    void (*call)(void**);
    unsigned count;
    unsigned sizes[32];
    Kernel* next;
};

struct Module {
    void* library;
    const Kernel* (*find)(const char*);
    int (*launch)(const Kernel*, const Launch*, void**);
};
struct Function {
    Module* module;
    const Kernel* kernel;
};

/// Device memory ends at a page that nobody may touch; the bytes between its end and that page are a canary.
struct Allocation {
    unsigned char* mapping;
    size_t mapped;
    size_t bytes;
};

constexpr unsigned char CANARY = 0x5c;
constexpr size_t PAGE = 4096, ALIGN = 16;
constexpr unsigned MOST_SHARED = 227 << 10, OPT_IN_SHARED = 48 << 10;

std::mutex mutex;
std::map<uintptr_t, Allocation> allocations;
size_t allocated = 0;
std::atomic<uint64_t> launches{0};
thread_local char message[512];
thread_local const char* running = nullptr;
thread_local void* current_context = nullptr;
char context_tag;

int fail(int code, const char* text) {
    if (text != message) {
        snprintf(message, sizeof(message), "%s", text);
    }
    return code;
}

size_t slack(const Allocation& a) {
    return (ALIGN - a.bytes % ALIGN) % ALIGN;
}

/// Whether [address, address + bytes) lies in one allocation.
bool inside(uintptr_t address, size_t bytes) {
    auto after = allocations.upper_bound(address);
    if (after == allocations.begin()) {
        return false;
    }
    --after;
    return address - after->first <= after->second.bytes && bytes <= after->second.bytes - (address - after->first);
}

int copy_fault(const char* what, uintptr_t address, size_t bytes) {
    snprintf(message, sizeof(message), "%s of %zu bytes at %#zx leaves its allocation", what, bytes, (size_t)address);
    return INVALID_VALUE;
}

struct sigaction previous;

/// A kernel that reads or writes behind an allocation stops here.
void on_fault(int number, siginfo_t* info, void* context) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
    auto after = allocations.upper_bound(address);
    if (running != nullptr && after != allocations.begin()) {
        --after;
        const Allocation& a = after->second;
        if (address - after->first < a.bytes + slack(a) + PAGE) {
            char text[256];
            int n = snprintf(text, sizeof(text),
                             "emulated GPU: kernel %s touched byte %zu of an allocation of %zu bytes\n", running,
                             (size_t)(address - after->first), a.bytes);
            ssize_t ignored = write(2, text, (size_t)n);
            (void)ignored;
            signal(number, SIG_DFL);
            raise(number);
            return;
        }
    }
    if (previous.sa_flags & SA_SIGINFO && previous.sa_sigaction != nullptr) {
        previous.sa_sigaction(number, info, context);
    } else {
        signal(number, SIG_DFL);
        raise(number);
    }
}

void watch_faults() {
    static std::once_flag once;
    std::call_once(once, [] {
        struct sigaction action = {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(SIGSEGV, &action, &previous);
    });
}

uint64_t order_of_launch() {
    const char* text = getenv("NTC_EMU_ORDER");
    const uint64_t order = text != nullptr ? strtoull(text, nullptr, 10) : 1;
    const uint64_t launch = launches.fetch_add(1);
    return order == 0 ? 0 : order * 0x9e3779b97f4a7c15u + launch * 2 + 1;
}

size_t total_memory() {
    const char* text = getenv("NTC_EMU_MEMORY");
    return text != nullptr ? strtoull(text, nullptr, 10) : (size_t)8 << 30;
}

}  // namespace

extern "C" {

/// Tells the stand-in from a driver.
int ntc_emu_driver(void) {
    return 1;
}

int cuInit(unsigned) {
    return SUCCESS;
}
int cuDriverGetVersion(int* version) {
    *version = 13000;
    return SUCCESS;
}
int cuDeviceGetCount(int* count) {
    *count = 1;
    return SUCCESS;
}
int cuDeviceGet(int* device, int ordinal) {
    *device = 0;
    return ordinal == 0 ? SUCCESS : fail(INVALID_DEVICE, "the emulation has one device, number 0");
}
int cuDeviceGetName(char* name, int length, int) {
    snprintf(name, (size_t)length, "emulated GPU");
    return SUCCESS;
}
int cuDeviceTotalMem_v2(size_t* bytes, int) {
    *bytes = total_memory();
    return SUCCESS;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
    switch (attribute) {
        case 1: *value = 1024; break;              // threads of a block
        case 8: *value = (int)OPT_IN_SHARED; break;
        case 10: *value = 32; break;               // warp
        case 16: *value = 2; break;                // multiprocessors
        case 75: *value = 9; break;                // compute capability
        case 76: *value = 0; break;
        case 97: *value = (int)MOST_SHARED; break;
        default: *value = 0;                       // memory pools (115) among them
    }
    return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
    *context = &context_tag;
    return SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int) {
    return SUCCESS;
}
int cuCtxGetCurrent(void** context) {
    *context = current_context;
    return SUCCESS;
}
int cuCtxSetCurrent(void* context) {
    current_context = context;
    return SUCCESS;
}
int cuCtxSynchronize(void) {
    return SUCCESS;
}
int cuStreamSynchronize(void*) {
    return SUCCESS;
}
int cuStreamWaitEvent(void*, void*, unsigned) {
    return SUCCESS;
}
int cuEventCreate(void** event, unsigned) {
    *event = &context_tag;
    return SUCCESS;
}
int cuEventRecord(void*, void*) {
    return SUCCESS;
}
int cuEventDestroy_v2(void*) {
    return SUCCESS;
}
int cuEventSynchronize(void*) {
    return SUCCESS;
}

int cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
    std::lock_guard<std::mutex> lock(mutex);
    *total = total_memory();
    *free_bytes = *total > allocated ? *total - allocated : 0;
    return SUCCESS;
}
int cuMemAlloc_v2(uint64_t* pointer, size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    if (bytes == 0) {
        return fail(INVALID_VALUE, "an allocation of 0 bytes");
    }
    if (allocated + bytes > total_memory()) {
        return fail(OUT_OF_MEMORY, "out of memory");
    }
    Allocation a;
    a.bytes = bytes;
    const size_t whole = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    a.mapped = (whole + PAGE - 1) / PAGE * PAGE + PAGE;
    void* mapping = mmap(nullptr, a.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) {
        return fail(OUT_OF_MEMORY, "out of memory");
    }
    a.mapping = static_cast<unsigned char*>(mapping);
    mprotect(a.mapping + a.mapped - PAGE, PAGE, PROT_NONE);
    unsigned char* start = a.mapping + a.mapped - PAGE - whole;
    memset(start, 0xa5, bytes);
    memset(start + bytes, CANARY, whole - bytes);
    allocations[reinterpret_cast<uintptr_t>(start)] = a;
    allocated += bytes;
    *pointer = reinterpret_cast<uintptr_t>(start);
    return SUCCESS;
}
int cuMemFree_v2(uint64_t pointer) {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = allocations.find(pointer);
    if (found == allocations.end()) {
        return pointer == 0 ? SUCCESS : fail(INVALID_VALUE, "free of something that was not allocated");
    }
    allocated -= found->second.bytes;
    munmap(found->second.mapping, found->second.mapped);
    allocations.erase(found);
    return SUCCESS;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void*) {
    std::lock_guard<std::mutex> lock(mutex);
    if (!inside(to, bytes)) {
        return copy_fault("an upload", to, bytes);
    }
    memcpy(reinterpret_cast<void*>(to), from, bytes);
    return SUCCESS;
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void*) {
    std::lock_guard<std::mutex> lock(mutex);
    if (!inside(from, bytes)) {
        return copy_fault("a download", from, bytes);
    }
    memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return SUCCESS;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void*) {
    std::lock_guard<std::mutex> lock(mutex);
    if (!inside(from, bytes) || !inside(to, bytes)) {
        return copy_fault("a copy", to, bytes);
    }
    memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    return SUCCESS;
}
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void*) {
    std::lock_guard<std::mutex> lock(mutex);
    if (!inside(to, bytes)) {
        return copy_fault("a fill", to, bytes);
    }
    memset(reinterpret_cast<void*>(to), value, bytes);
    return SUCCESS;
}

/// An image is what the stand-in compiler made: 8 bytes of magic, 8 of length, a shared library.
int cuModuleLoadData(void** module, const void* image) {
    const unsigned char* bytes = static_cast<const unsigned char*>(image);
    if (memcmp(bytes, "NTCEMU1", 8) != 0) {
        return fail(INVALID_IMAGE, "the image was not made by the stand-in compiler");
    }
    uint64_t length;
    memcpy(&length, bytes + 8, 8);
    // The same image is loaded once: a library that is loaded stays, for threads may hold its thread-local memory.
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint64_t k = 0; k < length; ++k) {
        hash = (hash ^ bytes[16 + k]) * 0x100000001b3u;
    }
    static std::map<std::pair<uint64_t, uint64_t>, Module*> modules;
    std::lock_guard<std::mutex> lock(mutex);
    Module*& known = modules[{hash, length}];
    if (known != nullptr) {
        *module = known;
        return SUCCESS;
    }
    const int file = memfd_create("ntc-emu-kernels", MFD_CLOEXEC);
    if (file < 0) {
        return fail(OUT_OF_MEMORY, "no memory file for a module");
    }
    for (uint64_t done = 0; done < length;) {
        const ssize_t n = write(file, bytes + 16 + done, length - done);
        if (n <= 0) {
            close(file);
            return fail(OUT_OF_MEMORY, "a module could not be written to memory");
        }
        done += (uint64_t)n;
    }
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    // The file stays open: the loader knows libraries by their file, and a reused number must not meet an old name.
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        snprintf(message, sizeof(message), "the module does not load: %s", dlerror());
        close(file);
        return INVALID_IMAGE;
    }
    Module* made = new Module;
    made->library = library;
    made->find = reinterpret_cast<const Kernel* (*)(const char*)>(dlsym(library, "ntc_emu_find"));
    made->launch = reinterpret_cast<int (*)(const Kernel*, const Launch*, void**)>(dlsym(library, "ntc_emu_launch"));
    if (made->find == nullptr || made->launch == nullptr) {
        delete made;
        return fail(INVALID_IMAGE, "the module has no kernels");
    }
    known = made;
    *module = made;
    return SUCCESS;
}
int cuModuleUnload(void*) {
    return SUCCESS;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
    Module* of = static_cast<Module*>(module);
    const Kernel* kernel = of->find(name);
    if (kernel == nullptr) {
        snprintf(message, sizeof(message), "the module has no kernel named %s", name);
        return NOT_FOUND;
    }
    *function = new Function{of, kernel};
    return SUCCESS;
}
int cuFuncGetParamInfo(void* function, size_t index, size_t* offset, size_t* bytes) {
    const Kernel* kernel = static_cast<Function*>(function)->kernel;
    if (index >= kernel->count) {
        return INVALID_VALUE;
    }
    *offset = 0;
    *bytes = kernel->sizes[index];
    return SUCCESS;
}
int cuFuncSetAttribute(void*, int, int) {
    return SUCCESS;
}
int cuFuncGetAttribute(int* value, int, void*) {
    *value = 0;
    return SUCCESS;
}

int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared_bytes, void*, void** parameters, void**) {
    Function* f = static_cast<Function*>(function);
    const char* name = f->kernel->name;
    const uint64_t threads = (uint64_t)bx * by * bz;
    if (gx == 0 || gy == 0 || gz == 0 || gx > 0x7fffffffu || gy > 65535 || gz > 65535) {
        snprintf(message, sizeof(message), "kernel %s: a grid of %u x %u x %u blocks", name, gx, gy, gz);
        return INVALID_VALUE;
    }
    if (threads == 0 || threads > 1024) {
        snprintf(message, sizeof(message), "kernel %s: blocks of %u x %u x %u threads", name, bx, by, bz);
        return INVALID_VALUE;
    }
    if (shared_bytes > OPT_IN_SHARED) {
        snprintf(message, sizeof(message), "kernel %s: %u bytes of shared memory, more than %u", name, shared_bytes,
                 OPT_IN_SHARED);
        return INVALID_VALUE;
    }
    for (unsigned k = 0; k < f->kernel->count; ++k) {
        if (parameters[k] == nullptr) {
            snprintf(message, sizeof(message), "kernel %s: argument %u is missing", name, k);
            return INVALID_VALUE;
        }
    }
    watch_faults();
    const Launch launch = {{gx, gy, gz}, {bx, by, bz}, shared_bytes, order_of_launch(), message, sizeof(message)};
    running = name;
    const int broken = f->module->launch(f->kernel, &launch, parameters);
    running = nullptr;
    if (broken) {
        return LAUNCH_FAILED;
    }
    std::lock_guard<std::mutex> lock(mutex);
    for (auto& [start, a] : allocations) {
        for (size_t k = 0; k < slack(a); ++k) {
            if (reinterpret_cast<unsigned char*>(start)[a.bytes + k] != CANARY) {
                snprintf(message, sizeof(message), "kernel %s: wrote byte %zu of an allocation of %zu bytes", name,
                         a.bytes + k, a.bytes);
                return ILLEGAL_ADDRESS;
            }
        }
    }
    return SUCCESS;
}

int cuGetErrorName(int code, const char** name) {
    switch (code) {
        case SUCCESS: *name = "CUDA_SUCCESS"; break;
        case INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; break;
        case OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
        default: *name = "CUDA_ERROR_UNKNOWN";
    }
    return SUCCESS;
}
int cuGetErrorString(int code, const char** text) {
    *text = code == SUCCESS ? "no error" : message[0] != 0 ? message : "unknown error";
    return SUCCESS;
}

}  // extern "C"
