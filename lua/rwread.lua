-- Grants a read/write lock for reading, if nobody writes or waits to write.
--
-- KEYS[1]  lock
-- KEYS[2]  writer's intent
-- KEYS[3]  the owner's first read hold
-- KEYS[4]  fencing counter; only for a fenced lock
-- ARGV[1]  lease, milliseconds
-- ARGV[2]  owner; a new one for every grant
-- ARGV[3]  beginning of the keys of read holds
--
-- reply    {1, token}       acquired; the token of the newest writer, 0 for an unfenced lock
--          {0, pttl, owner} refused; the rest of the writer's lease, or intent, -1 without an end;
--                           owner is the writer, '' if unknown
--          {0, pttl, '', 1} refused, as a writer waits; the rest of the writer's intent
--          {-1, key, type}  the key is no read/write lock
local mode, shared = look(KEYS[1], ARGV[2])
if stranger(mode) then
    return {-1, KEYS[1], mode}
end
local lease, ttl = tonumber(ARGV[1]), redis.call('pttl', KEYS[1])
if shared == 0 then
    if mode == 'write' or ttl == -1 then -- a lock without TTL is foreign, or broken
        return {0, ttl, writer(KEYS[1]) or ''}
    end
    local intent = redis.call('pttl', KEYS[2])
    if intent >= 0 then
        local what = redis.call('type', KEYS[2]).ok
        if what ~= 'string' then
            return {-1, KEYS[2], what}
        end
        return {0, intent, '', 1}
    end
end

local token = 0
if KEYS[4] then
    token = newest(KEYS[4])
    if not token then
        return strange(KEYS[4])
    elseif token == '0' then
        token = following(KEYS[4], token)
    end
    token = number(token)
end

if shared > 0 then -- the answer to an earlier delivery was lost
    extend(KEYS[1], ARGV[3], ARGV[2], shared, shared, lease)
    return {1, token}
end
redis.call('set', KEYS[3], 1, 'px', ARGV[1])
if mode == 'none' then
    redis.call('hset', KEYS[1], 'mode', 'read', ARGV[2], 1)
else
    redis.call('hset', KEYS[1], ARGV[2], 1)
end
if ttl < lease then
    local armed = redis.pcall('pexpire', KEYS[1], ARGV[1])
    if armed ~= 1 and mode == 'none' then -- not DEL, to which a user may have lost the right together with PEXPIRE
        redis.call('hdel', KEYS[1], 'mode', ARGV[2])
    end
    if armed ~= 1 then
        return armed
    end
end
return {1, token}
