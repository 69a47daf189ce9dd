package org.mpca.wire;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Typed reading of an unpacked map, with errors that name the field and what it belongs to.
 *
 * <p>Concurrency: immutable, as far as the values in it are left alone.
 */
public final class Fields {
    private final String owner;
    private final Map<String, Object> values;

    private Fields(String owner, Map<String, Object> values) {
        this.owner = owner;
        this.values = values;
    }

    /** Wraps fields of our own making. */
    static Fields of(String owner, Map<String, Object> values) {
        return new Fields(owner, Collections.unmodifiableMap(values));
    }

    /** Wraps an unpacked value, which must be a map with text as keys. */
    static Fields parse(String owner, Object value) throws ProtocolException {
        if (!(value instanceof Map)) {
            throw new ProtocolException(owner + " is not a map: " + describe(value));
        }
        Map<String, Object> values = new LinkedHashMap<>();
        for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
            if (!(entry.getKey() instanceof String)) {
                throw new ProtocolException(owner + " has a field without a name: " + entry.getKey());
            }
            values.put((String) entry.getKey(), entry.getValue());
        }
        return new Fields(owner, Collections.unmodifiableMap(values));
    }

    public Map<String, Object> asMap() {
        return values;
    }

    public boolean has(String name) {
        return values.get(name) != null;
    }

    public int integer(String name) throws ProtocolException {
        long value = number(name);
        if (value != (int) value) {
            throw new ProtocolException(owner + "." + name + " is beyond 32 bits: " + value);
        }
        return (int) value;
    }

    public long number(String name) throws ProtocolException {
        Object value = get(name);
        if (!(value instanceof Long) && !(value instanceof Integer)) {
            throw wrong(name, "a whole number", value);
        }
        return ((Number) value).longValue();
    }

    /** A whole number is taken for a real one: Python packs 1 and 1.0 differently and means the same. */
    public double real(String name) throws ProtocolException {
        Object value = get(name);
        if (!(value instanceof Number)) {
            throw wrong(name, "a number", value);
        }
        return ((Number) value).doubleValue();
    }

    public String text(String name) throws ProtocolException {
        Object value = get(name);
        if (!(value instanceof String)) {
            throw wrong(name, "text", value);
        }
        return (String) value;
    }

    public byte[] bytes(String name) throws ProtocolException {
        Object value = get(name);
        if (!(value instanceof byte[])) {
            throw wrong(name, "bytes", value);
        }
        return (byte[]) value;
    }

    public List<?> list(String name) throws ProtocolException {
        Object value = get(name);
        if (!(value instanceof List)) {
            throw wrong(name, "a list", value);
        }
        return (List<?>) value;
    }

    public Map<?, ?> map(String name) throws ProtocolException {
        Object value = get(name);
        if (!(value instanceof Map)) {
            throw wrong(name, "a map", value);
        }
        return (Map<?, ?>) value;
    }

    /** A list of whole numbers within 0 .. Long.MAX_VALUE, for offsets and ids. */
    public List<Long> numbers(String name) throws ProtocolException {
        List<Long> numbers = new ArrayList<>();
        for (Object one : list(name)) {
            if (!(one instanceof Long) && !(one instanceof Integer)) {
                throw wrong(name, "a list of whole numbers", one);
            }
            numbers.add(((Number) one).longValue());
        }
        return numbers;
    }

    private Object get(String name) throws ProtocolException {
        if (!values.containsKey(name)) {
            throw new ProtocolException(owner + "." + name + " is missing: fields=" + values.keySet());
        }
        return values.get(name);
    }

    private ProtocolException wrong(String name, String wanted, Object value) {
        return new ProtocolException(owner + "." + name + " is not " + wanted + ": " + describe(value));
    }

    private static String describe(Object value) {
        String text = value == null ? "null" : value.getClass().getSimpleName() + " " + value;
        return text.length() > 100 ? text.substring(0, 100) + "..." : text;
    }
}
