package rcoe;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisException;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;
import site.ycsb.StringByteIterator;

/**
 * YCSB on Redis: a record is a hash, and a sorted set of all keys, by their hash code, is the index
 * for scans. One connection for each client thread.
 */
public class Redis extends DB {
  private static final String INDEX = "_index";
  private Jedis redis;

  @Override
  public void init() throws DBException {
    int port = Integer.parseInt(getProperties().getProperty("redis.port"));
    redis = new Jedis("127.0.0.1", port, 60_000);
  }

  @Override
  public void cleanup() throws DBException {
    redis.close();
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> out) {
    if (fields == null) {
      Map<String, String> found = redis.hgetAll(key);
      StringByteIterator.putAllAsByteIterators(out, found);
      return found.isEmpty() ? Status.NOT_FOUND : Status.OK;
    }
    String[] names = fields.toArray(new String[0]);
    List<String> values = redis.hmget(key, names);
    for (int i = 0; i < names.length; i++) {
      if (values.get(i) == null) {
        return Status.NOT_FOUND;
      }
      out.put(names[i], new StringByteIterator(values.get(i)));
    }
    return Status.OK;
  }

  @Override
  public Status scan(
      String table, String start, int count, Set<String> fields,
      Vector<HashMap<String, ByteIterator>> out) {
    double from = start.hashCode();
    for (String key : redis.zrangeByScore(INDEX, from, Double.POSITIVE_INFINITY, 0, count)) {
      HashMap<String, ByteIterator> record = new HashMap<>();
      Status status = read(table, key, fields, record);
      if (!status.isOk()) {
        return status;
      }
      out.add(record);
    }
    return Status.OK;
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    return write(key, values);
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    Status status = write(key, values);
    if (status.isOk()) {
      redis.zadd(INDEX, key.hashCode(), key);
    }
    return status;
  }

  @Override
  public Status delete(String table, String key) {
    boolean gone = redis.del(key) == 1 && redis.zrem(INDEX, key) == 1;
    return gone ? Status.OK : Status.ERROR;
  }

  private Status write(String key, Map<String, ByteIterator> values) {
    try {
      return redis.hmset(key, StringByteIterator.getStringMap(values)).equals("OK")
          ? Status.OK
          : Status.ERROR;
    } catch (JedisException e) {
      return Status.ERROR;
    }
  }
}
