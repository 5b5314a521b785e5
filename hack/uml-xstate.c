// User Mode Linux of kernel 6.1 keeps the registers of its programs in a buffer that
// is too small for those of processors with AMX, and the machine's kernel takes back
// all of them or none: then no program starts. Loaded by LD_PRELOAD, this adds what is
// missing, which none of its programs uses.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

static long (*next)(enum __ptrace_request, pid_t, void *, void *);

__attribute__((constructor)) static void find(void) { next = dlsym(RTLD_NEXT, "ptrace"); }

long ptrace(enum __ptrace_request request, ...) {
	static char registers[1 << 16];
	va_list arguments;
	va_start(arguments, request);
	pid_t pid = va_arg(arguments, pid_t);
	void *address = va_arg(arguments, void *);
	void *data = va_arg(arguments, void *);
	va_end(arguments);

	if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE) {
		struct iovec *known = data, all = {registers, sizeof(registers)};
		if (next(PTRACE_GETREGSET, pid, address, &all) == 0 && all.iov_len > known->iov_len) {
			memcpy(registers, known->iov_base, known->iov_len);
			return next(PTRACE_SETREGSET, pid, address, &all);
		}
	}
	return next(request, pid, address, data);
}
