// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// The class of each application, as the priority of its packets, and the marks of these classes.

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u32);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} priorities SEC(".maps");

// The marks of the classes that applications have.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u8);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} used_marks SEC(".maps");
