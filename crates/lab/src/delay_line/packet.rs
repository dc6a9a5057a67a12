//! Packets as a TUN device with offloads passes them: a `virtio_net_hdr`, then an IP packet, which may consist of many TCP segments that
//! share their headers (GSO).

/// The length of a `virtio_net_hdr`.
const VIRTIO_HEADER_BYTES: usize = 10;
/// The maximum length of a packet with its header.
pub const MAX_BYTES: usize = VIRTIO_HEADER_BYTES + (64 << 10);
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum field contains the sum of the pseudo header only.
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_TCPV4` and `_TCPV6`, and the flag `_ECN`.
const GSO_TCP: [u8; 2] = [1, 4];
const GSO_ECN: u8 = 0x80;
/// The flags of TCP that belong to the first segment (CWR), and to the last one (FIN and PSH).
const FIRST_FLAGS: u8 = 0x80;
const LAST_FLAGS: u8 = 0x09;

/// How the segments of a packet are arranged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The length of the IP and TCP headers.
    header: usize,
    /// Where the TCP header starts in the IP packet.
    tcp: usize,
    /// The payload of a segment.
    segment: usize,
    /// The payload of all segments.
    payload: usize,
}

impl Layout {
    /// The layout of a packet; none if it is one segment, or not TCP.
    pub fn of(packet: &[u8]) -> Option<Layout> {
        let (virtio, ip) = packet.split_at_checked(VIRTIO_HEADER_BYTES)?;
        let word = |at: usize| usize::from(u16::from_ne_bytes([virtio[at], virtio[at + 1]]));
        let (gso_type, segment, tcp) = (virtio[1] & !GSO_ECN, word(4), word(6));
        if virtio[0] & NEEDS_CHECKSUM == 0 || !GSO_TCP.contains(&gso_type) || segment == 0 {
            return None;
        }
        let header = tcp + 4 * usize::from(ip.get(tcp + 12)? >> 4);
        let payload = ip.len().checked_sub(header)?;
        (tcp >= 20 && header >= tcp + 20 && payload > segment).then_some(Layout {
            header,
            tcp,
            segment,
            payload,
        })
    }

    /// The number of segments.
    pub fn segments(self) -> usize {
        self.payload.div_ceil(self.segment)
    }

    /// The bytes of a segment's IP packet.
    pub fn segment_bytes(self, index: usize) -> usize {
        self.header + self.segment.min(self.payload - index * self.segment)
    }

    /// Copies a segment into a separate packet, whose checksum the kernel computes.
    pub fn copy_segment(self, packet: &[u8], index: usize) -> Vec<u8> {
        let (virtio, ip) = packet.split_at(VIRTIO_HEADER_BYTES);
        let data = self.header + index * self.segment;
        let bytes = self.segment_bytes(index);
        let mut out = Vec::with_capacity(VIRTIO_HEADER_BYTES + bytes);
        out.extend_from_slice(virtio);
        // No GSO: neither type nor size.
        out[1] = 0;
        out[4..6].fill(0);
        out.extend_from_slice(&ip[..self.header]);
        out.extend_from_slice(&ip[data..data + bytes - self.header]);
        self.fix_headers(&mut out[VIRTIO_HEADER_BYTES..], ip.len(), index);
        out
    }

    /// Sets the lengths, number, flags and checksums of a segment, whose headers are those of the whole packet of `whole` bytes.
    fn fix_headers(self, ip: &mut [u8], whole: usize, index: usize) {
        let (old, new) = ((whole - self.tcp) as u16, (ip.len() - self.tcp) as u16);
        if ip[0] >> 4 == 4 {
            let id = word_at(ip, 4).wrapping_add(index as u16);
            for (at, value) in [(2, ip.len() as u16), (4, id)] {
                let sum = !sum_with_change(!word_at(ip, 10), word_at(ip, at), value);
                set_word(ip, 10, sum);
                set_word(ip, at, value);
            }
        } else {
            set_word(ip, 4, (ip.len() - 40) as u16);
        }
        let tcp = &mut ip[self.tcp..];
        let start = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        tcp[4..8].copy_from_slice(&start.wrapping_add((index * self.segment) as u32).to_be_bytes());
        if index > 0 {
            tcp[13] &= !FIRST_FLAGS;
        }
        if index + 1 < self.segments() {
            tcp[13] &= !LAST_FLAGS;
        }
        // The pseudo header contains the length of the TCP segment.
        let sum = sum_with_change(word_at(tcp, 16), old, new);
        set_word(tcp, 16, sum);
    }
}

/// The bytes of the IP packet.
pub fn ip_bytes(packet: &[u8]) -> usize {
    packet.len().saturating_sub(VIRTIO_HEADER_BYTES)
}

fn word_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn set_word(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// A sum in one's complement after one of its words changed (RFC 1624).
fn sum_with_change(sum: u16, old: u16, new: u16) -> u16 {
    let total = u32::from(sum) + u32::from(!old) + u32::from(new);
    let folded = (total & 0xffff) + (total >> 16);
    (folded + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum in one's complement of words.
    fn sum(bytes: &[u8]) -> u16 {
        let words =
            bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
        let total: u32 = words.sum();
        let folded = (total & 0xffff) + (total >> 16);
        (folded + (folded >> 16)) as u16
    }

    /// An IPv4 packet with this payload, as the kernel passes it: 20 bytes of IP header, 32 bytes of TCP header with CWR, PSH, ACK, FIN.
    fn gso_packet(payload: &[u8], segment: u16) -> Vec<u8> {
        let mut packet = vec![NEEDS_CHECKSUM, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        packet[4..6].copy_from_slice(&segment.to_ne_bytes());
        packet[6..8].copy_from_slice(&20u16.to_ne_bytes());
        packet[8..10].copy_from_slice(&16u16.to_ne_bytes());
        let length = (52 + payload.len()) as u16;
        let mut ip = vec![0x45, 0, 0, 0, 0xff, 0xff, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        set_word(&mut ip, 2, length);
        let checksum = !sum(&ip);
        set_word(&mut ip, 10, checksum);
        let mut tcp = vec![0; 32];
        tcp[4..8].copy_from_slice(&0xffff_fff0u32.to_be_bytes());
        tcp[12] = 8 << 4;
        tcp[13] = 0x99;
        let pseudo = pseudo_sum(&ip, length - 20);
        set_word(&mut tcp, 16, pseudo);
        packet.extend([ip, tcp, payload.to_vec()].concat());
        packet
    }

    fn pseudo_sum(ip: &[u8], length: u16) -> u16 {
        sum(&[&ip[12..20], &[0, 6], &length.to_be_bytes()[..]].concat())
    }

    #[test]
    fn copied_segments_carry_the_payload_with_valid_headers() {
        let payload: Vec<u8> = (0..2_500u32).map(|n| n as u8).collect();
        let packet = gso_packet(&payload, 1_000);
        let layout = Layout::of(&packet).unwrap();
        assert_eq!(layout.segments(), 3);
        let mut data = Vec::new();
        for index in 0..3 {
            let segment = layout.copy_segment(&packet, index);
            assert_eq!((segment[1], &segment[4..6]), (0, &[0, 0][..]));
            let ip = &segment[VIRTIO_HEADER_BYTES..];
            assert_eq!(usize::from(word_at(ip, 2)), ip.len());
            assert_eq!(word_at(ip, 4), 0xffffu16.wrapping_add(index as u16));
            assert_eq!(sum(&ip[..20]), 0xffff, "the IP checksum");
            let sequence = u32::from_be_bytes(ip[24..28].try_into().unwrap());
            assert_eq!(sequence, 0xffff_fff0u32.wrapping_add(1_000 * index as u32));
            assert_eq!(ip[33], [0x90, 0x10, 0x19][index], "the flags");
            assert_eq!(word_at(ip, 36), pseudo_sum(ip, ip.len() as u16 - 20));
            data.extend_from_slice(&ip[52..]);
        }
        assert_eq!(data, payload);
    }

    #[test]
    fn packets_without_several_tcp_segments_stay_whole() {
        assert_eq!(Layout::of(&gso_packet(&[0; 900], 1_000)), None);
        assert_eq!(Layout::of(&gso_packet(&[0; 3_000], 0)), None);
        let mut udp = gso_packet(&[0; 3_000], 1_000);
        udp[1] = 5;
        assert_eq!(Layout::of(&udp), None);
        for length in 0..80 {
            assert_eq!(Layout::of(&gso_packet(&[0; 3_000], 1_000)[..length]), None, "{length} bytes");
        }
    }
}
