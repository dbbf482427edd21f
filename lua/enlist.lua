-- Keeps a client in the list of clients with a record, and takes out clients whose record is
-- over.
--
-- KEYS[1]  list, a sorted set of clients by the end of their records in milliseconds of
--          the server's clock
-- ARGV[1]  client
-- ARGV[2]  how long the client's record lasts, in milliseconds; 0 takes the client out
--
-- reply    {1, listed}      done; so many clients are in the list
--          {-1, key, type}  the key is no list of clients
local kind = redis.call('type', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'zset' then
    return {-1, KEYS[1], kind}
end
local time, lasts = redis.call('time'), tonumber(ARGV[2])
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if lasts > 0 then
    redis.call('zadd', KEYS[1], string.format('%.0f', now + lasts), ARGV[1])
    if redis.call('pttl', KEYS[1]) < lasts then -- records of other clients may last for longer
        redis.call('pexpire', KEYS[1], lasts)
    end
else
    redis.call('zrem', KEYS[1], ARGV[1])
end
local over = redis.call('zrangebyscore', KEYS[1], '-inf', string.format('%.0f', now), 'limit', 0, 1000)
if #over > 0 then
    redis.call('zrem', KEYS[1], unpack(over))
end
return {1, redis.call('zcard', KEYS[1])}
