-- Writes a client's record: its long holds and waits, in place of the record before.
--
-- KEYS[1]  record
-- ARGV[1]  how long the record lasts, in milliseconds; 0 removes the record
-- ARGV     field, value, ...
--
-- reply    1               written, or removed
--          {-1, key, type}  the key is no record
local kind = redis.call('type', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'hash' then
    return {-1, KEYS[1], kind}
end
redis.call('del', KEYS[1])
for i = 2, #ARGV, 1000 do -- more would not fit on Lua's stack
    redis.call('hset', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
if #ARGV > 1 then
    redis.call('pexpire', KEYS[1], ARGV[1])
end
return 1
