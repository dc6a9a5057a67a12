// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Registers the congestion control of dctcp.c with the kernel, prints "registered", and waits until its standard input ends. The kernel
// unregisters the congestion control when this process ends, however it ends. Connections that use it by then keep it.
//
// A separate program, since `aya` cannot load struct_ops. crates/testbed/build.rs compiles it; DCTCP_OBJECT is the path of the compiled
// dctcp.c, which becomes a part of the program.

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

// Names of the kernel's interface that older headers lack.
#define WEIR_BPF_F_LINK (1U << 13)
#define WEIR_BPF_STRUCT_OPS 44

__asm__(".section .rodata\n"
	".balign 8\n"
	"dctcp_start: .incbin \"" DCTCP_OBJECT "\"\n"
	"dctcp_end:\n"
	".previous\n");

extern const char dctcp_start[], dctcp_end[];

// Prints libbpf's warnings, but not the verifier's long log: this process must not wait for a reader of its standard error.
static int print_warning(enum libbpf_print_level level, const char *format, va_list arguments)
{
	char line[256];
	int length = vsnprintf(line, sizeof(line), format, arguments);

	return level == LIBBPF_WARN && length < (int)sizeof(line) ? fputs(line, stderr) : 0;
}

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	return 1;
}

// Registers the congestion control for the lifetime of a file descriptor of this process. Returns a negative number on failure.
static int register_dctcp(struct bpf_map *dctcp)
{
	if (!bpf_map__attach_struct_ops(dctcp))
		return -1;
	// Before version 1.2, libbpf only prepares the registration of a map with this flag.
	if (libbpf_major_version() == 1 && libbpf_minor_version() < 2)
		return bpf_link_create(bpf_map__fd(dctcp), 0, WEIR_BPF_STRUCT_OPS, NULL);
	return 0;
}

int main(void)
{
	struct bpf_object *object;
	struct bpf_map *dctcp;
	char byte;

	libbpf_set_print(print_warning);
	object = bpf_object__open_mem(dctcp_start, dctcp_end - dctcp_start, NULL);
	if (!object)
		return fail("the program cannot be read");
	dctcp = bpf_object__find_map_by_name(object, "weir_dctcp");
	if (!dctcp || bpf_map__set_map_flags(dctcp, WEIR_BPF_F_LINK))
		return fail("the program lacks weir_dctcp");
	if (bpf_object__load(object))
		return fail("the kernel refuses the program");
	if (register_dctcp(dctcp) < 0)
		return fail(errno == EEXIST ? "another process, such as a second testbed, has registered weir_dctcp" : "the kernel refuses weir_dctcp");
	puts("registered");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0 || errno == EINTR)
		errno = 0;
	return 0;
}
