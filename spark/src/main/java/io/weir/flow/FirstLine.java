package io.weir.flow;

/** The first line of a connection of a flow. The protocol is described in docs/flow-protocol.md. */
public final class FirstLine {
    static final String PROTOCOL = "weir-flow/2";
    static final long MAX_FLOW = 0xffff_ffffL;
    static final int MAX_GENERATION = 65535;
    static final long MAX_OFFSET = 1L << 62;

    public final String coflow;
    public final long flow;
    public final int generation;
    public final long offset;
    public final HostPort receiver;

    public FirstLine(String coflow, long flow, int generation, long offset, HostPort receiver) {
        if (!coflow.matches("[!-~]{1,128}")) {
            throw new IllegalArgumentException("coflow: " + coflow + "; expected 1 to 128 printable ASCII characters without spaces");
        }
        checkRange("flow", flow, MAX_FLOW);
        checkRange("generation", generation, MAX_GENERATION);
        checkRange("offset", offset, MAX_OFFSET);
        if (!receiver.isAddress()) {
            throw new IllegalArgumentException("receiver: " + receiver + "; expected an IP address and a port");
        }
        this.coflow = coflow;
        this.flow = flow;
        this.generation = generation;
        this.offset = offset;
        this.receiver = receiver;
    }

    /** Parses a line without its end. */
    public static FirstLine parse(String line) {
        String[] words = line.split(" ", -1);
        if (words.length != 6 || !words[0].equals(PROTOCOL)) {
            throw new IllegalArgumentException("first line: expected " + PROTOCOL + " COFLOW FLOW GENERATION OFFSET RECEIVER");
        }
        long flow = parseNumber("flow", words[2], MAX_FLOW);
        int generation = (int) parseNumber("generation", words[3], MAX_GENERATION);
        return new FirstLine(words[1], flow, generation, parseNumber("offset", words[4], MAX_OFFSET), HostPort.parse(words[5]));
    }

    /** Parses a decimal number without sign or leading zeros. */
    static long parseNumber(String field, String text, long max) {
        if (!text.matches("0|[1-9][0-9]{0,18}")) {
            throw new IllegalArgumentException(field + ": " + text + "; expected a decimal number");
        }
        // 19 digits can exceed 2^63, which parseLong refuses with an IllegalArgumentException too.
        long number = Long.parseLong(text);
        checkRange(field, number, max);
        return number;
    }

    private static void checkRange(String field, long value, long max) {
        if (value < 0 || value > max) {
            throw new IllegalArgumentException(field + ": " + value + "; expected 0 to " + max);
        }
    }

    @Override
    public String toString() {
        return PROTOCOL + " " + coflow + " " + flow + " " + generation + " " + offset + " " + receiver;
    }
}
