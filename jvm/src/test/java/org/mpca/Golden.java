package org.mpca;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Reads {@code tests/golden}, which Python's tests read too. */
public final class Golden {
    private Golden() {}

    public static File file(String path) {
        return new File(System.getProperty("mpca.golden", "../tests/golden"), path);
    }

    public static JsonNode read(String path) {
        return read(file(path));
    }

    public static JsonNode read(File file) {
        try {
            return new ObjectMapper().readTree(file);
        } catch (IOException e) {
            throw new AssertionError("cannot read golden file " + file, e);
        }
    }

    public static byte[] hex(String text) {
        byte[] bytes = new byte[text.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(text.substring(2 * i, 2 * i + 2), 16);
        }
        return bytes;
    }

    public static String hex(byte[] bytes) {
        return bytes.length == 0 ? "" : String.format("%0" + 2 * bytes.length + "x", new BigInteger(1, bytes));
    }

    /** A JSON value as msgpack would give it; bytes as hex text in a one-entry map, so that maps compare by value. */
    public static Object value(JsonNode node) {
        if (node.isObject()) {
            Map<String, Object> map = new LinkedHashMap<>();
            node.properties().forEach(entry -> map.put(entry.getKey(), value(entry.getValue())));
            return map;
        }
        if (node.isArray()) {
            List<Object> list = new ArrayList<>();
            node.forEach(one -> list.add(value(one)));
            return list;
        }
        return node.isIntegralNumber()
                ? (Object) node.longValue()
                : node.isNumber()
                        ? (Object) node.doubleValue()
                        : node.isBoolean() ? (Object) node.booleanValue() : node.isNull() ? null : node.textValue();
    }

    /** The same form for an unpacked value. */
    public static Object comparable(Object value) {
        if (value instanceof byte[]) {
            Map<String, Object> map = new LinkedHashMap<>();
            map.put("hex", hex((byte[]) value));
            return map;
        }
        if (value instanceof Map) {
            Map<String, Object> map = new LinkedHashMap<>();
            ((Map<?, ?>) value).forEach((key, one) -> map.put(String.valueOf(key), comparable(one)));
            return map;
        }
        if (value instanceof List) {
            List<Object> list = new ArrayList<>();
            ((List<?>) value).forEach(one -> list.add(comparable(one)));
            return list;
        }
        return value;
    }

    /** The reverse of {@link #comparable}. */
    public static Object original(Object value) {
        if (value instanceof Map) {
            Map<?, ?> map = (Map<?, ?>) value;
            if (map.size() == 1 && map.containsKey("hex")) {
                return hex((String) map.get("hex"));
            }
            Map<String, Object> copy = new LinkedHashMap<>();
            map.forEach((key, one) -> copy.put((String) key, original(one)));
            return copy;
        }
        if (value instanceof List) {
            List<Object> list = new ArrayList<>();
            ((List<?>) value).forEach(one -> list.add(original(one)));
            return list;
        }
        return value;
    }
}
