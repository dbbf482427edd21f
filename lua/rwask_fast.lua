-- Stands before the rest of rwask, behind token.lua: nobody queues, and the lock is free, or others
-- read and this is a reader. To define the functions below would cost more than this. A lock that
-- fails here is left to the functions below, and fails there in the same way.
if redis.pcall('exists', KEYS[2]) == 0 then
    local call, lock, lease, owner, reads = redis.pcall, KEYS[1], ARGV[1], ARGV[2], ARGV[5] == '1'
    local ttl = call('pttl', lock)
    local found = reads and type(ttl) == 'number' and ttl > 0 and call('hmget', lock, 'mode', owner) or {}
    local token = '0'
    if KEYS[4] then
        token = newest(KEYS[4])
    end
    if token and (ttl == -2 or found[1] == 'read' and not found[2]) then
        if KEYS[4] and (not reads or token == '0') then -- a reader has the token of the newest writer
            token = following(KEYS[4], token)
        end
        local set = reads and call('set', KEYS[3], 1, 'px', lease) or {}
        if not set.err then
            local field, added = reads and owner or owner .. ':write', nil
            if ttl == -2 then
                added = call('hset', lock, 'mode', reads and 'read' or 'write', field, 1)
            else
                added = call('hset', lock, field, 1)
            end
            if type(added) == 'number' then
                if ttl >= tonumber(lease) or call('pexpire', lock, lease) == 1 then
                    return {1, number(token)}
                end
                redis.call('hdel', lock, field, ttl == -2 and 'mode' or field)
            end
        end
    end
end
